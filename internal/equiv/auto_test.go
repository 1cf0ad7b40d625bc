// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"maps"
	"strings"
	"testing"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
)

// newAuto makes EPL that chooses how programs run.
func newAuto(t testing.TB, devices int, params map[string]any) *epl.Env {
	t.Helper()
	all := map[string]any{"auto.auto_parallel": true}
	maps.Copy(all, params)
	cfg, err := epl.NewConfig(all)
	if err != nil {
		t.Fatal(err)
	}
	env, err := epl.Init(cfg, epl.WithLocalDevices(devices))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	return env
}

// plainly is the model without annotations.
func (m Parted) plainly() Staged { return m.under(splitPlan{parts: make([]int, m.Least)}) }

// A model without annotations has the weights of one device, whichever way EPL chooses for it. A third of the ways are tried, unless -equiv.seeds asks for more
// than usual. It does not run in parallel with other tests: the hook is for all programs.
func TestEveryWayThatEPLMayChooseGivesTheWeightsOfOneDevice(t *testing.T) {
	defer func() { plan.Consider = nil }()
	const devices = 4
	for i, m := range PartedModels() {
		if m.PerInstance {
			continue // a step on one large batch is another
		}
		t.Run(m.Name, func(t *testing.T) {
			want := m.under(splitPlan{parts: []int{1, 1}[:m.Least], colocate: true}).alone(t, 0, devices, sgd(), 3)
			seen := map[string]bool{}
			for {
				now := ""
				plan.Consider = func(_ *ir.Program, w plan.Way) bool { // the first that was not seen yet
					name := w.String()
					if now == "" && !seen[name] {
						if seen[name] = true; *seedCount > usualSeeds || (i+len(seen))%3 == 0 {
							now = name
						}
					}
					return name == now
				}
				env := newAuto(t, devices, nil)
				got, err := m.plainly().train(env.Backend(), 0, env.Dataset(Dataset{m.Batch}), epl.Optimizer(sgd()), 3)
				if now == "" {
					break
				}
				t.Run(strings.ReplaceAll(now, " ", "_"), func(t *testing.T) {
					if err != nil {
						t.Fatal(err)
					}
					mustBeClose(t, want, got)
				})
			}
			if len(seen) < 6 {
				t.Errorf("only %d ways", len(seen))
			}
		})
	}
}
