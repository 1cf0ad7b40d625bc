// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"cmp"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// piecewise runs a program that is too large for one device, result by result. Results stay on the host, from where each
// device gets its part: this is how models start that fit only into all devices together. Where devices share the host's
// memory it runs on the host, and no device has to hold even one result; else it runs on the first device. It implements
// compute.Executable.
type piecewise struct {
	*exec.Signature
	program *ir.Program
	runner  *Runner
	onHost  bool
	opts    exec.WholeOptions
	order   []int // results, as they are computed
	pieces  []*ir.Segment
	execs   []compute.Executable // nil: an earlier piece gives the result

	profiles []*schedule.Profile
}

var _ compute.Executable = (*piecewise)(nil)

// newPiecewise cuts a program that takes no data into a piece for each of its results.
func newPiecewise(p *ir.Program, runner *Runner, opts exec.WholeOptions) (*piecewise, error) {
	x := &piecewise{Signature: &exec.Signature{Program: p}, program: p, runner: runner, opts: opts}
	if runner.devices[0].HasSharedBuffers() {
		x.opts.Memory, x.onHost = 0, true
	}
	ledger := schedule.NewLedger(p)
	// In the order of the program: random numbers follow from each other, and a piece that needs the last ones would have all of them. A state of random
	// numbers comes last: its piece would have the numbers that were made with it, too, and keep them for another.
	at := map[*ir.Op]int{}
	for i, op := range p.Main.Ops {
		at[op] = i
	}
	var outputs []*ir.Value
	for i := range p.Main.Outputs {
		x.order = append(x.order, i)
	}
	when := func(i int) int {
		if op := p.Main.Outputs[i].Op; len(op.Outputs) == 1 {
			return at[op]
		}
		return len(p.Main.Ops)
	}
	slices.SortStableFunc(x.order, func(i, j int) int { return cmp.Compare(when(i), when(j)) })
	for _, i := range x.order {
		outputs = append(outputs, p.Main.Outputs[i])
	}
	computed := map[*ir.Op]int{}
	for i, o := range outputs {
		piece := ir.Cut(p.Main, "", func(op *ir.Op) bool { _, done := computed[op]; return !done }, []*ir.Value{o})
		for _, op := range piece.Ops {
			if !op.IsLeaf() {
				computed[op] = i
			}
		}
	}
	for i, o := range outputs {
		outs := []*ir.Value{o}
		seen := map[*ir.Value]bool{o: true}
		gives := func(v *ir.Value) {
			if from, ok := computed[v.Op]; ok && from == i && !seen[v] {
				seen[v] = true
				outs = append(outs, v)
			}
		}
		for _, op := range p.Main.Ops { // what later pieces need
			if at, ok := computed[op]; ok && at > i {
				op.Uses(gives)
			}
		}
		for _, v := range outputs[i+1:] {
			gives(v)
		}
		piece := ir.Cut(p.Main, p.Name, func(op *ir.Op) bool { at, ok := computed[op]; return ok && at == i }, outs)
		var e compute.Executable
		if from, ok := computed[o.Op]; !ok || from == i {
			var err error
			if e, err = emit.Segment(runner.devices[0], piece); err != nil {
				x.Finalize()
				return nil, err
			}
		}
		x.pieces, x.execs = append(x.pieces, piece), append(x.execs, e)
	}
	var all readying
	for i, e := range x.execs {
		all.add(e, make([]bool, len(x.pieces[i].Inputs)))
	}
	if err := all.wait(); err != nil {
		x.Finalize()
		return nil, err
	}
	for i, e := range x.execs { // what they need is known where they are compiled before they run
		x.profiles = append(x.profiles, ledger.Profile(x.pieces[i], listing(e)))
	}
	return x, nil
}

// Finalize implements compute.Executable.
func (x *piecewise) Finalize() {
	for _, e := range x.execs {
		if e != nil {
			e.Finalize()
		}
	}
}

// Execute implements compute.Executable.
func (x *piecewise) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	if err := x.runner.check(device); err != nil {
		return nil, err
	}
	if err := x.Signature.Check(inputs, donate); err != nil {
		return nil, err
	}
	values := map[*ir.Value]compute.Buffer{}
	defer func() {
		for _, b := range values {
			_ = b.Finalize()
		}
	}()
	given := map[*ir.Value]compute.Buffer{}
	m := meter{limit: x.opts.Memory}
	for i, v := range x.program.Main.Params {
		b, err := x.runner.own(x.program.Name, i, inputs[i])
		if err != nil {
			return nil, err
		}
		shard, err := b.shard(0)
		if err != nil {
			return nil, errors.WithMessagef(err, "program %q, input %d", x.program.Name, i)
		}
		given[v] = shard
		if err := m.add(x.opts.Profile.Use(i), bytesOf(shard)); err != nil {
			return nil, errors.WithMessagef(err, "program %q", x.program.Name)
		}
	}
	results := make([]compute.Buffer, len(x.pieces))
	for i, piece := range x.pieces {
		if err := x.run(i, piece, given, values, &m, results); err != nil {
			return nil, errors.WithMessagef(err, "program %q, result %d", x.program.Name, x.order[i])
		}
	}
	for i, d := range donate {
		if d {
			if err := inputs[i].Finalize(); err != nil {
				return nil, err
			}
		}
	}
	if !x.onHost {
		x.runner.stats.ran(0, m.books, nil)
	}
	return results, nil
}

// run computes one result, and what later ones need.
func (x *piecewise) run(i int, piece *ir.Segment, given, values map[*ir.Value]compute.Buffer, m *meter, results []compute.Buffer) (err error) {
	to := x.order[i]
	if b := values[piece.Outputs[0]]; x.execs[i] == nil {
		if results[to], err = x.result(b, piece.Outputs[0].Shape); err != nil {
			return err
		}
		return x.drop(i, values, m)
	}
	var ins []compute.Buffer
	for _, v := range piece.Inputs {
		if b := given[v]; b != nil {
			ins = append(ins, b)
		} else {
			ins = append(ins, values[v])
		}
	}
	if err := m.during(x.profiles[i].Need(func(int) bool { return false })); err != nil {
		return err
	}
	outs, err := x.execs[i].Execute(ins, nil, 0)
	if err != nil {
		return err
	}
	for j, v := range piece.Outputs[1:] {
		values[v] = outs[1+j]
		if err := m.add(schedule.ForTemporaries, v.Bytes()); err != nil {
			return err
		}
	}
	if results[to], err = x.result(outs[0], x.program.Main.Outputs[to].Shape); err != nil {
		return err
	}
	if err := x.drop(i, values, m); err != nil {
		return err
	}
	if v := piece.Outputs[0]; !v.Op.IsLeaf() && values[v] == nil && needed(x.pieces[i+1:], v) {
		values[v] = outs[0]
		return m.add(schedule.ForTemporaries, v.Bytes())
	}
	return outs[0].Finalize()
}

// drop frees what no later piece reads.
func (x *piecewise) drop(i int, values map[*ir.Value]compute.Buffer, m *meter) error {
	for v, b := range values {
		if !needed(x.pieces[i+1:], v) {
			delete(values, v)
			if err := m.add(schedule.ForTemporaries, -v.Bytes()); err != nil {
				return err
			}
			if err := b.Finalize(); err != nil {
				return err
			}
		}
	}
	return nil
}

// result keeps a result on the host.
func (x *piecewise) result(b compute.Buffer, shape shapes.Shape) (*Buffer, error) {
	device := x.runner.devices[0]
	if host := hostMemory(device); host != nil && x.opts.Pinned {
		p, err := host.ToHost(b)
		if err == nil {
			err = host.Await(p)
		}
		return &Buffer{runner: x.runner, shape: shape, shards: []compute.Buffer{&hostBuffer{backend: device, pinned: p, shape: shape}}}, err
	}
	flat, err := toHost(b, shape)
	return &Buffer{runner: x.runner, shape: shape, flat: flat}, err
}

// needed tells whether a piece reads a value.
func needed(pieces []*ir.Segment, v *ir.Value) bool {
	for _, p := range pieces {
		for _, in := range p.Inputs {
			if in == v {
				return true
			}
		}
	}
	return false
}
