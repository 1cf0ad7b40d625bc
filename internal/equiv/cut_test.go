// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// pieces runs a program as segments, one after the other. It implements compute.Executable.
type pieces struct {
	program  *ir.Program
	segments []*ir.Segment
	execs    []compute.Executable
	lastUse  map[*ir.Value]int // the last segment that takes it
}

// inPieces cuts a program: each op goes to the segment that piece says, and the last one returns the results.
func inPieces(backend compute.Backend, p *ir.Program, n int, piece func(*ir.Op) int) (compute.Executable, error) {
	e := &pieces{program: p, lastUse: map[*ir.Value]int{}}
	for i := range n {
		here := func(op *ir.Op) bool { return piece(op) == i }
		outputs := p.Main.Outputs
		if i < n-1 {
			outputs = ir.Crossing(p.Main, here)
		}
		if len(outputs) == 0 { // nothing of it is needed
			continue
		}
		s := ir.Cut(p.Main, fmt.Sprintf("piece %d", i), here, outputs)
		exec, err := emit.Segment(backend, s)
		if err != nil {
			return nil, err
		}
		for _, v := range s.Inputs {
			e.lastUse[v] = len(e.segments)
		}
		e.segments, e.execs = append(e.segments, s), append(e.execs, exec)
	}
	return e, nil
}

func (e *pieces) Finalize() {
	for _, x := range e.execs {
		x.Finalize()
	}
}

func (e *pieces) Inputs() (names []string, in []shapes.Shape) {
	for _, v := range e.program.Main.Params {
		names, in = append(names, v.Op.Attrs.(*ir.Parameter).Name), append(in, v.Shape)
	}
	return names, in
}

func (e *pieces) Outputs() (out []shapes.Shape) {
	for _, v := range e.program.Main.Outputs {
		out = append(out, v.Shape)
	}
	return out
}

// Execute hands a buffer over to the last segment that takes it: those computed here, and those donated to it.
func (e *pieces) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) (outs []compute.Buffer, err error) {
	values, ours := map[*ir.Value]compute.Buffer{}, map[*ir.Value]bool{}
	for i, v := range e.program.Main.Params {
		values[v], ours[v] = inputs[i], len(donate) > 0 && donate[i]
	}
	for i, s := range e.segments {
		ins, last := make([]compute.Buffer, len(s.Inputs)), make([]bool, len(s.Inputs))
		for j, v := range s.Inputs {
			if ins[j] = values[v]; ins[j] == nil {
				return nil, fmt.Errorf("%s needs %s, which no piece before it computes", s.Name, v)
			}
			last[j] = ours[v] && e.lastUse[v] == i
		}
		if outs, err = e.execs[i].Execute(ins, last, device); err != nil {
			return nil, err
		}
		for j, v := range s.Outputs {
			if i < len(e.segments)-1 {
				values[v], ours[v] = outs[j], true
			}
		}
	}
	return outs, nil
}

func TestATrainStepCutIntoForwardBackwardAndApplyTrainsBitForBitAsTheWhole(t *testing.T) {
	for _, cut := range []struct {
		name  string
		n     int
		piece func(*ir.Op) int
	}{
		{"forward with backward, apply", 2, func(op *ir.Op) int { return max(0, int(op.Phase)-1) }},
		{"forward, backward, apply", 3, func(op *ir.Op) int { return int(op.Phase) }},
	} {
		for _, m := range Models() {
			for _, o := range optimizers {
				t.Run(cut.name+"/"+m.Name+"/"+o.name, func(t *testing.T) {
					t.Parallel()
					const steps = 5
					want := train1(t, m, o.make(), steps, nil)
					trained := 0
					backend, _ := NewRecorder(func(inner compute.Backend, p *ir.Program) (compute.Executable, error) {
						if !p.IsTraining() {
							return emit.Program(inner, p)
						}
						trained++
						exec, err := inPieces(inner, p, cut.n, cut.piece)
						if err == nil && len(exec.(*pieces).segments) != cut.n {
							err = fmt.Errorf("there are %d pieces", len(exec.(*pieces).segments))
						}
						return exec, err
					})
					defer backend.Finalize()
					got, err := Train(backend, m, epl.Optimizer(o.make()), steps)
					if err != nil {
						t.Fatalf("%+v", err)
					}
					if err := SameBits(want, got); err != nil {
						t.Error(err)
					}
					if trained != 1 {
						t.Errorf("%d programs train", trained)
					}
				})
			}
		}
	}
}

func TestRandomProgramsCutAnywhereGiveTheSameBits(t *testing.T) {
	plain := Plain()
	defer plain.Finalize()
	for _, seed := range seeds()[:min(40, len(seeds()))] {
		r := NewRandom(seed)
		want, err := r.Run(plain)
		if err != nil {
			t.Fatalf("plain GoMLX: %+v\n%s", err, r)
		}
		backend, _ := NewRecorder(func(inner compute.Backend, p *ir.Program) (compute.Executable, error) {
			rng := rand.New(rand.NewPCG(seed, 3))
			n := 2 + rng.IntN(4)
			place := map[*ir.Op]int{}
			for i, op := range p.Main.Ops {
				place[op] = i * n / len(p.Main.Ops)
			}
			return inPieces(inner, p, n, func(op *ir.Op) int { return place[op] })
		})
		got, err := r.Run(backend)
		if err == nil {
			err = r.compare(want, got, true)
		}
		if err != nil {
			t.Errorf("%+v\n%s", err, r)
		}
		backend.Finalize()
	}
}
