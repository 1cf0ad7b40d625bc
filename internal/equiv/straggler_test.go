// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"regexp"
	"testing"

	"github.com/easyparallel/epl"
)

// A worker whose device is slow is named by the first one, with its machine, also if it is alone with its stage: then it must have become so.
func TestAWorkerThatHoldsUpTheOthersIsNamed(t *testing.T) {
	for name, fault := range map[string]string{"alike": "slow:rank=1,factor=600", "in stages": "slow:rank=1,factor=600,step=20"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := workers{num: 3, devices: 1, hosts: "a,b,a", env: []string{epl.EnvFaults + "=" + fault}}
			outputs, errs := w.play(t, "straggler "+name)
			for i, err := range errs {
				if err != nil {
					t.Fatalf("worker %d: %v\n%s", i, err, outputs[i])
				}
			}
			named := regexp.MustCompile(`epl: worker 1 \(b, pid \d+\) is slow, and the others wait for it: since step \d+ it is busy for [\d.]+ ms of a step, [\d.]+ times as long as .*; rank 1 computes for`)
			if !named.MatchString(outputs[0]) {
				t.Errorf("it is not named:\n%s", outputs[0])
			}
		})
	}
}

func init() {
	straggle := func(stages, steps int) func(w *part) error {
		return func(w *part) error {
			env, err := w.init(map[string]any{"pipeline.num_micro_batch": 1})
			if err != nil {
				return err
			}
			m := stagedMLP()
			if _, err := m.train(env.Backend(), stages, env.Dataset(Dataset{m.Batch}), epl.Optimizer(sgd()), steps); err != nil {
				return err
			}
			return env.Close()
		}
	}
	parts["straggler alike"] = straggle(1, 50)
	parts["straggler in stages"] = straggle(3, 70)
}
