// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/easyparallel/epl"
)

// The workers of a job decide alike, whoever has the batch, and all say what one of them finds.
func TestSeveralWorkersSkipAStepThatIsNotFiniteAndNameTheSameOp(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1}, {num: 3, devices: 1, hosts: "a,b,a"}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "not finite") })
	}
}

func init() {
	parts["not finite"] = func(w *part) error {
		m := stagedMLP()
		for _, params := range []map[string]any{{}, {"zero.level": "v2"}, {"amp.level": "O1"}} {
			params["reliability.nan"] = "skip"
			env, err := w.init(params)
			if err != nil {
				return err
			}
			n := env.Cluster().TotalDevices()
			bad := m
			bad.Batch = spoiled(m.Batch, 2*n-1, math.NaN())
			run, _, err := bad.averaged(env, 2, adam(), 4)
			if err != nil {
				return err
			}
			skipped, err := env.SkippedSteps()
			if err != nil || skipped != 1 || run.Losses[1] != run.Losses[0] {
				return fmt.Errorf("%d steps were skipped, losses are %v, %v", skipped, run.Losses, err)
			}
			w.report(fmt.Sprint(params), run)
			if err := env.Close(); err != nil {
				return err
			}
		}
		env, err := w.init(map[string]any{"reliability.nan": "stop"})
		if err != nil {
			return err
		}
		n := env.Cluster().TotalDevices()
		bad := logged()
		clean := bad.Batch
		bad.Batch = func(step int) (in, labels []*tensors.Tensor) {
			in, labels = clean(step)
			if step == 2*n-1 {
				in[0].MustMutableFlatData(func(flat any) { flat.([]float32)[3] = 1.5 })
			}
			return in, labels
		}
		_, err = bad.train(env.Backend(), 2, env.Dataset(Dataset{bad.Batch}), epl.Optimizer(adam()), 4)
		if want := fmt.Sprintf("step 2 is not finite, and changed no variable (reliability.nan = stop): computed again op by op, batch %d of the %d of the step: "+
			"the loss is not finite. It begins with Log", n-1, n); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("%v lacks %q", err, want)
		}
		fmt.Println("stopped at step 2")
		_ = env.Close() // which says why the job ended
		return nil
	}
}
