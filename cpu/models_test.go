// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/compute/support/backendtest"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers/lstm"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
)

// recorder runs whole programs on a device as they were recorded, and keeps them.
type recorder struct {
	compute.DataInterface
	device   *cpu.Backend
	programs []*ir.Program
}

func (r *recorder) Compile(p *ir.Program) (compute.Executable, error) {
	r.programs = append(r.programs, p)
	return emit.Program(r.device, p)
}

func (r *recorder) Finalize() { r.device.Finalize() }

func (r *recorder) Closed() error { return nil }

func recorded(t *testing.T, opts ...cpu.Option) (*recorder, compute.Backend) {
	b := cpu.New(opByOp(t), 2, opts...)
	r := &recorder{DataInterface: b, device: b}
	backend := record.NewBackend(r, record.Options{})
	t.Cleanup(backend.Finalize)
	return r, backend
}

func TestGoMLXBackendTestsPassOnTheEngineFusedAndOpByOp(t *testing.T) {
	for name, opts := range map[string][]cpu.Option{"fused": nil, "op by op": {unfused}} {
		t.Run(name, func(t *testing.T) {
			_, backend := recorded(t, opts...)
			backendtest.RunAll(t, backend, nil)
		})
	}
}

// recurrent is a training step of an LSTM: its weights' gradients.
func recurrent(x, inputs, states, biases *Node) []*Node {
	_, last, _ := lstm.NewWithWeights(x, inputs, states, biases, nil).Direction(lstm.DirForward).Done()
	return Gradient(ReduceAllSum(Mul(last, last)), inputs, states, biases)
}

// experts is a training step of experts that words are sent to: the two with the best scores, by rows of a table.
func experts(words, table, gate, weights *Node) []*Node {
	x := Gather(table, words)
	all := Softmax(MatMul(x, gate), -1)
	_, chosen := TopK(StopGradient(all), 2, -1)
	scores := ReduceSum(Mul(OneHot(chosen, 4, all.DType()), ExpandAxes(all, 1)), -1)
	w := Gather(weights, ExpandAxes(chosen, -1))
	y := Einsum("bd,bkde->bke", x, w)
	return Gradient(ReduceAllSum(Tanh(ReduceSum(Mul(y, ExpandAxes(scores, -1)), 1))), table, gate, weights)
}

func TestModelsThatRecurAndThatHaveExpertsRunOnTheEngineAlone(t *testing.T) {
	f32 := func(dims ...int) shapes.Shape { return shapes.Make(dtypes.Float32, dims...) }
	for name, m := range map[string]struct {
		step   func(a, b, c, d *Node) []*Node
		shapes []shapes.Shape
	}{
		"LSTM":    {recurrent, []shapes.Shape{f32(4, 6, 5), f32(1, 4, 8, 5), f32(1, 4, 8, 8), f32(1, 8, 8)}},
		"experts": {experts, []shapes.Shape{shapes.Make(dtypes.Int32, 16, 1), f32(20, 8), f32(8, 4), f32(4, 8, 6)}},
	} {
		t.Run(name, func(t *testing.T) {
			r, backend := recorded(t)
			exec, err := NewExec(backend, m.step)
			if err != nil {
				t.Fatal(err)
			}
			var args []any
			for _, s := range m.shapes {
				args = append(args, tensors.FromShape(s))
			}
			if _, err := exec.Call(args...); err != nil {
				t.Fatal(err)
			}
			p := r.programs[len(r.programs)-1]
			l, err := r.device.Plan(emit.Whole(p))
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range l.Steps {
				if step.Kind == emit.Fallback {
					t.Errorf("%s of %s runs on another backend", step.What, step.Size)
				}
			}
		})
	}
}
