// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/support/exceptions"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// Stages on GPUs of one worker copy values from each other: however many micro-batches there are, no more is copied to the host, and from the host
// only data. Weights are those of the pure-Go backend, which goes through the host.
func TestValuesOfStagesStayOnGPUs(t *testing.T) {
	skips := StagedModels()[1]
	for name, c := range map[string]struct {
		m      Staged
		p      pipelinePlan
		params map[string]any
	}{
		"2 stages":         {stagedMLP(), pipelinePlan{stages: 2, replicas: 1}, nil},
		"2 replicas":       {stagedMLP(), pipelinePlan{stages: 2, replicas: 2}, nil},
		"skip connections": {skips, pipelinePlan{stages: 3, replicas: 1, strategy: "PreferForward"}, nil},
		"interleaved":      {skips, pipelinePlan{stages: 4, replicas: 1, strategy: "Interleaved", perDevice: 2}, nil},
		"zero bubble":      {stagedMLP(), pipelinePlan{stages: 3, replicas: 1, strategy: "ZeroBubble"}, nil},
		"recompute":        {skips, pipelinePlan{stages: 2, replicas: 2}, map[string]any{"gradient_checkpoint.type": "auto"}},
		"ZeRO":             {stagedMLP(), pipelinePlan{stages: 2, replicas: 2}, map[string]any{"zero.level": "v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			const steps = 2
			f := fakeGPUs(t, 4, 0)
			run := func(micro int, inner string) (run *Run, calls map[string]int) {
				before := map[string]int{}
				for _, function := range []string{toHost, fromHost, copies} {
					before[function] = f.Calls(function)
				}
				c.p.micro = micro
				env := c.p.env(t, c.params, epl.WithInner(inner))
				run = c.m.piped(t, env, c.p.stages, sgd(), steps)
				calls = map[string]int{}
				for function, n := range before {
					calls[function] = f.Calls(function) - n
				}
				var err error
				if run.Store, err = run.Store.Clone(); err != nil {
					t.Fatal(err)
				}
				if err := env.Close(); err != nil {
					t.Fatal(err)
				}
				return run, calls
			}
			const few, many = 2, 5
			_, want := run(few, "xla:fake")
			got, calls := run(many, "xla:fake")
			cpu, _ := run(many, "go")
			if err := SameBits(cpu, got); err != nil && c.p.replicas == 1 {
				t.Error(err)
			}
			mustBeClose(t, cpu, got) // GPUs add up in another order
			more := (many - few) * steps * c.p.replicas
			if calls[toHost] != want[toHost] || calls[fromHost] != want[fromHost]+2*more { // inputs and labels
				t.Errorf("%d more micro-batches: %v instead of %v", many-few, calls, want)
			}
			if calls[copies]-want[copies] < 2*more {
				t.Errorf("%d copies, and %d with %d more micro-batches", want[copies], calls[copies], many-few)
			}
		})
	}
}

const (
	toHost   = "PJRT_Buffer_ToHostBuffer"
	fromHost = "PJRT_Client_BufferFromHostBuffer"
	copies   = "PJRT_Buffer_CopyToMemory"
)

// The receiver takes memory for a value when it comes to it, and the sender keeps it until then: the meter and the GPU have what was predicted, or less
// where a neighbour is fast.
func TestTheAccountForetellsWhatStagesOnGPUsNeed(t *testing.T) {
	m := Staged{"wide", StagedMLP(func(_ *model.Scope, x *graph.Node) *graph.Node { return x }), loss.MeanSquaredError, Regression(512, 64)} // most of it travels
	for _, p := range []pipelinePlan{{2, 1, 6, "", 0}, {4, 1, 6, "PreferForward", 0}, {3, 1, 5, "ZeroBubble", 0}, {4, 1, 4, "Interleaved", 2}, {2, 2, 3, "", 0}} {
		t.Run(p.String(), func(t *testing.T) {
			fakeGPUs(t, 4, 0)
			env := p.env(t, nil, epl.WithInner("xla:fake"))
			store := newStore()
			less := func(int) bool { return true }
			foretold(t, env, train.NewTrainer(env.Backend(), store, m.Build(p.stages), m.Loss, epl.Optimizer(sgd()), nil, nil), Dataset{m.Batch}, 0, less)
			for d, want := range env.Predicted().Devices {
				if got := env.Stats().Devices[d].Allocated + xlatest.Temporary; got > want.PeakBytes*101/100 { // the fake does not take that
					t.Errorf("device %d: the GPU had %d bytes, predicted %d", d, got, want.PeakBytes)
				}
			}
			if _, err := store.Clone(); err != nil {
				t.Fatal(err)
			}
			if err := env.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// An error of one GPU comes late, names its program, and ends the step on all; nothing is left of it.
func TestAStageThatFailsOnItsGPU(t *testing.T) {
	m := stagedMLP()
	for failing := range 2 {
		for _, share := range []int{1, 2} {
			t.Run(fmt.Sprintf("stage %d, %d devices per GPU", failing, share), func(t *testing.T) {
				f := pjrttest.New(t, pjrttest.Options{Devices: 2 / share})
				trains := func(op *ir.Op) bool { return op.Phase == ir.Backward && op.Place == failing }
				var runs atomic.Int32
				see := func(s *ir.Segment, donate []bool, text string) {
					p := xlatest.Program(t, s, donate)
					if run := p.Run; slices.ContainsFunc(s.Ops, trains) {
						p.Run = func(device int, args [][]byte) ([][]byte, error) {
							if runs.Add(1) > 4 {
								return nil, errors.New("the GPU fell off the bus")
							}
							return run(device, args)
						}
					}
					f.Program(text, p)
				}
				exec.Register("xla", func(string) (exec.Kind, error) {
					return xlatest.Kind(t, f, xla.Options{Compiling: see, Share: share}), nil
				})
				env := newPipeline(t, 2, 3, nil, epl.WithInner("xla:fake"))
				var err error
				if late := exceptions.TryCatch[error](func() { // GoMLX's loop panics where it reads the loss
					_, err = m.train(env.Backend(), 2, env.Dataset(Dataset{m.Batch}), epl.Optimizer(sgd()), 4)
				}); late != nil {
					err = late
				}
				if err == nil || !strings.Contains(err.Error(), "the GPU fell off the bus") || !strings.Contains(err.Error(), "program") {
					t.Errorf("the error is %v", err)
				}
				if err := env.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Evaluation and prediction under the plan of a pipeline copy from GPU to GPU, too; so do several devices of one GPU, through the host if the plugin refuses to
// copy within one memory.
func TestStagesOnGPUsEvaluate(t *testing.T) {
	for _, share := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d devices per GPU", share), func(t *testing.T) {
			f := pjrttest.New(t, pjrttest.Options{Devices: 2 / share})
			exec.Register("xla", func(string) (exec.Kind, error) { return xlatest.Kind(t, f, xla.Options{Share: share}), nil })
			m := StagedModels()[1]
			env := newPipeline(t, 2, 3, nil, epl.WithInner("xla:fake"))
			run := m.piped(t, env, 2, sgd(), 2)
			before := f.Calls(copies)
			m.mustEvaluateAlike(t, env, run.Store, 2, 4, 4, 3)
			if f.Calls(copies) == before {
				t.Error("nothing was copied from GPU to GPU")
			}
			if err := env.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
