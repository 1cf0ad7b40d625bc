// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec/lower"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/shard"
)

// expanded partitions a program, and looks at what comes of it.
func expanded(p *ir.Program, choice shard.Choice) (*shard.Report, error) {
	r, err := shard.Partition(p, choice)
	if err != nil {
		return nil, err
	}
	if err := p.Verify(); err != nil {
		return nil, err
	}
	again, err := ir.Parse(p.String())
	if err != nil {
		return nil, err
	}
	if again.String() != p.String() {
		return nil, errors.Errorf("an SPMD program does not parse back:\n%s\n%s", p, again)
	}
	return r, nil
}

// mesh22 multiplies matrices on a mesh of 2 by 2 devices: rows of the first along one axis, what is contracted along the other.
const mesh22 = `program "mesh"
taskgraph 0 "all" split(4)
stage taskgraph 0 place 0 place 1 place 2 place 3 axis 2 axis 2
input %0
input %1
main {
  %0 = Parameter() {Name: "x", Shape: float32[4,6]} -> float32[4,6] : forward
  %1 = Parameter() {Name: "y", Shape: float32[6,8]} -> float32[6,8] : forward
  %8 = Position() {Axis: "model"} -> int32[] on model of 2 each : forward
  %9 = Position() {Axis: "model2"} -> int32[] on model2 of 2 each : forward
  %2 = Reshard(%0, %8) -> float32[4,6] on model of 2 sharded(0) : forward taskgraph 0
  %10 = Reshard(%2, %9) -> float32[4,6] on model of 2 sharded(0) on model2 of 2 sharded(1) : forward taskgraph 0
  %3 = Reshard(%1, %9) -> float32[6,8] on model2 of 2 sharded(0) : forward taskgraph 0
  %4 = DotGeneral(%10, %3) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[4,8] on model of 2 sharded(0) on model2 of 2 partial(sum) : forward taskgraph 0
  %5 = Reshard(%4) -> float32[4,8] on model of 2 sharded(0) on model2 of 2 sharded(1) : forward taskgraph 0
  %6 = Exp(%5) -> float32[4,8] on model of 2 sharded(0) on model2 of 2 sharded(1) : forward taskgraph 0
  %11 = Reshard(%6) -> float32[4,8] on model of 2 sharded(0) : forward taskgraph 0
  %7 = Reshard(%11) -> float32[4,8] : forward taskgraph 0
  return %7
}
`

func TestRulesHoldAlongEveryAxisOfAMesh(t *testing.T) {
	p, err := ir.Parse(mesh22)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	if p.String() != mesh22 {
		t.Errorf("it prints as\n%s", p)
	}
	if err := shard.Check(p); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"on model of 2 sharded(0) on model2 of 2 partial(sum)", "on model of 2 sharded(0) on model2 of 2 partial(max)", "DotGeneral"},
		{"on model of 2 sharded(0) on model2 of 2 partial(sum)", "on model of 2 sharded(1) on model2 of 2 partial(sum)", "DotGeneral"},
		{"on model of 2 sharded(0) on model2 of 2 sharded(1) : forward taskgraph 0\n  %11", "on model of 2 sharded(0) on model2 of 2 partial(sum) : forward taskgraph 0\n  %11", "Exp"},
		{"float32[6,8] on model2 of 2 sharded(0)", "float32[6,8] on model2 of 2 sharded(1)", "DotGeneral"},
	} {
		p, err := ir.Parse(strings.Replace(mesh22, c.from, c.to, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := shard.Check(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s in the place of %s: %v", c.to, c.from, err)
		}
	}
}

func TestTheShapeOnADeviceFollowsFromAllAxes(t *testing.T) {
	p, err := ir.Parse(mesh22)
	if err != nil {
		t.Fatal(err)
	}
	x := p.Main.Ops[5].Outputs[0]
	x.SetOn(ir.Replicas, ir.Placement{Kind: ir.Flat}, 4)
	if s := x.LocalShape(ir.Coordinates{1, 0, 1}); s.Rank() != 1 || s.Dimensions[0] != 2 { // 2 of 4 rows, 3 of 6 columns, a quarter of 6 elements
		t.Errorf("the device has %s", s)
	}
}

func TestPlacementsThatCannotBeAreFound(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"on model2 of 2 sharded(0) :", "on model3 of 2 sharded(0) :", "its stage has 0"},
		{"on model2 of 2 sharded(0) :", "on model2 of 2 sharded(2) :", "cannot be"},
		{"on model2 of 2 sharded(0) :", "on model2 of 2 sharded(0 by 4) :", "cannot be"},
		{"on model2 of 2 sharded(0) :", "on replica of 2 flat :", "its stage has 0"},
		{"axis 2 axis 2", "axis 2 axis 3", "mesh"},
		{"%7 = Reshard(%11)", "%7 = Reshard(%6)", "two axes"},
	} {
		p, err := ir.Parse(strings.Replace(mesh22, c.from, c.to, 1))
		if err == nil {
			err = p.Verify()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.to, err)
		}
	}
}

// Each of the four devices multiplies what it has; what those along the second axis have adds up to the product.
func TestDevicesOfAMeshComputeTheirParts(t *testing.T) {
	p, err := ir.Parse(mesh22)
	if err != nil {
		t.Fatal(err)
	}
	byID := map[int]*ir.Op{}
	for _, op := range p.Main.Ops {
		byID[op.ID] = op
	}
	backend := newBackend(t)
	rng := rand.New(rand.NewPCG(1, 1))
	x, y := random(rng, p.Inputs[0].Shape, 1), random(rng, p.Inputs[1].Shape, 1)
	want := compute1(t, backend, dotOf(byID[4], p.Inputs[0], p.Inputs[1]), map[*ir.Value]tensor{p.Inputs[0]: x, p.Inputs[1]: y})[0]
	product := ir.Cut(p.Main, "product", func(op *ir.Op) bool { return true }, byID[4].Outputs)
	for i := range 2 {
		var terms []tensor
		for j := range 2 {
			at := ir.Coordinates{0, i, j}
			s := lower.Lower(product, at)
			values := map[*ir.Value]tensor{}
			for n, v := range product.Inputs {
				switch a := v.Op.Attrs.(type) {
				case *ir.Parameter:
					values[s.Inputs[n]] = map[string]tensor{"x": x, "y": y}[a.Name]
				case *ir.Position:
					values[s.Inputs[n]] = newTensor(v.Shape)
					values[s.Inputs[n]].flat.Index(0).SetInt(int64(at.At(a.Axis)))
				}
			}
			for _, op := range s.Ops {
				for n, out := range compute1(t, backend, op, values) {
					values[op.Outputs[n]] = out
				}
			}
			terms = append(terms, values[s.Outputs[0]])
		}
		same(t, "rows of the product", part(want, 0, 2*i, 2*i+2), reduce(terms, ir.ReduceBySum))
	}
}

// dotOf is a product of other operands, whole.
func dotOf(op *ir.Op, x, y *ir.Value) *ir.Op {
	c := op.Copy([]*ir.Value{x, y})
	c.Outputs = []*ir.Value{{Op: c, Shape: op.Outputs[0].Shape}}
	return c
}
