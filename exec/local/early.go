package local

import (
	"os"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// early is a training step in two, for devices that run asynchronously: GoMLX's loop reads the metrics of every step before it begins the next one, and
// they are there before the optimizer has run. The rest runs while the loop reads, and uploads. It implements compute.Executable and emit.Late.
type early struct {
	whole    *ir.Segment
	segments [2]*ir.Segment // forward and backward; apply
	execs    [2]compute.Executable
}

var _ emit.Late = (*early)(nil)

// newEarly compiles a program in two; nil: there is nothing to read before the optimizer, or the device runs one thing after the other anyway.
func newEarly(b compute.Backend, p *ir.Program) (compute.Executable, error) {
	if _, ok := b.(emit.Grouper); !ok || !p.IsTraining() || os.Getenv("EPL_XLA_EARLY") == "off" {
		return nil, nil
	}
	whole := emit.Whole(p)
	last := applied(p)
	isLast := func(v *ir.Value) bool { return last[v.Op] || v.Op.IsLeaf() }
	var outs [2][]*ir.Value
	for _, v := range p.Main.Outputs {
		if isLast(v) {
			outs[1] = append(outs[1], v)
		} else if !slices.Contains(outs[0], v) {
			outs[0] = append(outs[0], v)
		}
	}
	if len(outs[0]) == 0 || len(outs[1]) == 0 {
		return nil, nil
	}
	for _, op := range p.Main.Ops {
		if last[op] {
			op.Uses(func(v *ir.Value) {
				if v.Op.Func == p.Main && !isLast(v) && !slices.Contains(outs[0], v) {
					outs[0] = append(outs[0], v)
				}
			})
		}
	}
	x := &early{whole: whole}
	x.segments[0] = ir.Cut(p.Main, p.Name+" until apply", func(op *ir.Op) bool { return !last[op] }, outs[0])
	x.segments[1] = ir.Cut(p.Main, p.Name+" apply", func(op *ir.Op) bool { return last[op] }, outs[1])
	for i, s := range x.segments {
		var err error
		if x.execs[i], err = emit.Segment(b, s); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// applied are the ops of the optimizer, with conversions of what only they read: gradients are smaller before.
func applied(p *ir.Program) map[*ir.Op]bool {
	last, users := map[*ir.Op]bool{}, map[*ir.Op][]*ir.Op{}
	for _, op := range p.Main.Ops {
		op.Uses(func(v *ir.Value) { users[v.Op] = append(users[v.Op], op) })
	}
	leaves := map[*ir.Op]bool{}
	for _, v := range p.Main.Outputs {
		leaves[v.Op] = true
	}
	for _, op := range slices.Backward(p.Main.Ops) {
		_, converts := op.Attrs.(*ir.ConvertDType)
		all := len(users[op]) > 0
		for _, u := range users[op] {
			all = all && last[u]
		}
		last[op] = !op.IsLeaf() && (op.Phase == ir.Apply || converts && all && !leaves[op])
	}
	return last
}

// Finalize implements compute.Executable.
func (x *early) Finalize() {
	for _, e := range x.execs {
		e.Finalize()
	}
}

// Inputs implements compute.Executable.
func (x *early) Inputs() (names []string, s []shapes.Shape) {
	for _, v := range x.whole.Inputs {
		names, s = append(names, v.Op.Attrs.(*ir.Parameter).Name), append(s, v.Shape)
	}
	return names, s
}

// Outputs implements compute.Executable.
func (x *early) Outputs() (s []shapes.Shape) {
	for _, v := range x.whole.Outputs {
		s = append(s, v.Shape)
	}
	return s
}

// donates are the inputs that each half may keep: what the second reads as well is its own, and so is what the first makes for it.
func (x *early) donates(donate []bool) (all [2][]bool) {
	given := func(v *ir.Value) bool {
		i := slices.Index(x.whole.Inputs, v)
		return i >= 0 && len(donate) > 0 && donate[i]
	}
	for _, v := range x.segments[0].Inputs {
		all[0] = append(all[0], given(v) && !slices.Contains(x.segments[1].Inputs, v))
	}
	for _, v := range x.segments[1].Inputs {
		made := slices.Contains(x.segments[0].Outputs, v)
		all[1] = append(all[1], given(v) || made && !slices.Contains(x.whole.Outputs, v))
	}
	return all
}

// Execute implements compute.Executable.
func (x *early) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	values, ways := map[*ir.Value]compute.Buffer{}, x.donates(donate)
	for i, v := range x.whole.Inputs {
		values[v] = inputs[i]
	}
	results := map[*ir.Value]compute.Buffer{}
	for i, s := range x.segments {
		ins := make([]compute.Buffer, len(s.Inputs))
		for j, v := range s.Inputs {
			ins[j] = values[v]
		}
		outs, err := x.execs[i].Execute(ins, ways[i], device)
		if err != nil {
			return nil, err
		}
		for j, v := range s.Outputs {
			results[v] = outs[j]
			if i == 0 {
				values[v] = outs[j]
			}
		}
	}
	for i, v := range x.whole.Inputs { // that nobody reads
		if len(donate) > 0 && donate[i] && !slices.Contains(x.segments[0].Inputs, v) && !slices.Contains(x.segments[1].Inputs, v) {
			if err := inputs[i].Finalize(); err != nil {
				return nil, err
			}
		}
	}
	all := make([]compute.Buffer, len(x.whole.Outputs))
	for i, v := range x.whole.Outputs {
		if slices.Contains(x.whole.Outputs[:i], v) { // returned twice
			c, err := results[v].CopyToDevice(device)
			if err != nil {
				return nil, err
			}
			all[i] = c
			continue
		}
		all[i] = results[v]
	}
	for _, v := range x.segments[1].Inputs { // that the second half read, and could not keep
		if b := results[v]; b != nil && !slices.Contains(x.whole.Outputs, v) && !x.kept(v, ways[1]) {
			if err := b.Finalize(); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// kept tells whether the second half took a value for itself.
func (x *early) kept(v *ir.Value, way []bool) bool { return way[slices.Index(x.segments[1].Inputs, v)] }

// Ready implements emit.Late.
func (x *early) Ready(donate []bool) error {
	var both readying
	for i, way := range x.donates(donate) {
		both.add(x.execs[i], way)
	}
	return both.wait()
}

// Memory implements emit.Late: gradients are beside what each half needs.
func (x *early) Memory() *emit.Listing {
	var halves [2]*emit.Listing
	for i, e := range x.execs {
		if halves[i] = e.(emit.Late).Memory(); halves[i] == nil {
			return nil
		}
	}
	between := int64(0)
	for _, v := range x.segments[0].Outputs {
		if !slices.Contains(x.whole.Outputs, v) {
			between += v.Bytes()
		}
	}
	l := &emit.Listing{Segment: x.whole.Name, Ops: len(x.whole.Ops), Level: halves[0].Level, Outside: between + max(halves[0].Outside, halves[1].Outside)}
	for _, v := range x.whole.Outputs {
		over := -1
		for i, h := range halves {
			if j := slices.Index(x.segments[i].Outputs, v); j >= 0 && h.Over[j] >= 0 {
				over = slices.Index(x.whole.Inputs, x.segments[i].Inputs[h.Over[j]])
			}
		}
		l.Over = append(l.Over, over)
	}
	return l
}
