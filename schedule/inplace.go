// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// Own is a part of a variable that a segment updates where it lies: that of this model replica. Its input is the part, its output the new one. All parts
// are then gathered into the memory of the variable, so that what the replica has of it is never copied.
type Own struct {
	Input, Output int // of the segment
	// New is the new value of the variable, which the parts are gathered into.
	New *ir.Value
}

// OwnInput is how the segment updates an input where it lies; nil: it does not.
func (s *Segment) OwnInput(i int) *Own {
	return s.own(func(x Own) bool { return x.Input == i })
}

// OwnOutput is how the segment updates what becomes an output where it lies; nil: it does not.
func (s *Segment) OwnOutput(i int) *Own {
	return s.own(func(x Own) bool { return x.Output == i })
}

func (s *Segment) own(is func(Own) bool) *Own {
	if i := slices.IndexFunc(s.Owns, is); i >= 0 {
		return &s.Owns[i]
	}
	return nil
}

// updateInPlace lets the segments of a place have the replica's part of a variable as their input, instead of all of it, where nobody else reads the old value.
func (b *builder) updateInPlace(place int) {
	list := b.s.Places[place]
	for at := range list {
		in := &list[at]
		if in.Kind != Run || in.Micro != Once {
			continue
		}
		for _, x := range b.s.Variables {
			cut, whole := b.parted(x, *in, list[at+1:])
			if cut == nil {
				continue
			}
			s := b.s.Segments[in.Segment]
			if in.In == nil {
				in.In = b.s.Takes(*in)
			}
			i := slices.Index(s.Inputs, x.Param)
			s.Inputs[i] = cut.Outputs[0]
			s.Ops = slices.DeleteFunc(s.Ops, func(op *ir.Op) bool { return op == cut })
			s.cut.ops++
			s.Owns = append(s.Owns, Own{i, slices.Index(s.Outputs, whole.Op.Inputs[0]), whole})
			b.s.inPlace[whole.Op.Inputs[0]] = whole
		}
		b.s.prune(in)
	}
}

// prune takes positions off the inputs of a segment that it no longer reads.
func (p *Program) prune(in *Instr) {
	s := p.Segments[in.Segment]
	read := map[*ir.Value]bool{}
	for _, op := range s.Ops {
		op.Uses(func(v *ir.Value) { read[v] = true })
	}
	for i := len(s.Inputs) - 1; i >= 0 && len(s.Owns) > 0; i-- {
		if read[s.Inputs[i]] || !given(s.Inputs[i]) {
			continue
		}
		s.Inputs, in.In = slices.Delete(s.Inputs, i, i+1), slices.Delete(in.In, i, i+1)
		s.cut.inputs++
		for k := range s.Owns {
			if s.Owns[k].Input > i {
				s.Owns[k].Input--
			}
		}
	}
}

// parted finds the op by which a segment cuts a replica's part out of a variable, and the new value that is gathered of what it makes of that. The segment is
// the last that reads the variable, and nobody needs the part once it is gathered.
func (b *builder) parted(x Variable, run Instr, later []Instr) (cut *ir.Op, whole *ir.Value) {
	s := b.s.Segments[run.Segment]
	if x.Update == nil || x.Host || !slices.Contains(run.Frees, Slot{x.Param, Once}) || !slices.Contains(s.Inputs, x.Param) || slices.Contains(s.Outputs, x.Param) {
		return nil, nil
	}
	gather := x.Update.Op
	if axis, how := changeOf(gather); axis != ir.Replicas || how != ir.AllGatherOf || !slices.Contains(s.Outputs, gather.Inputs[0]) {
		return nil, nil
	}
	part := Slot{gather.Inputs[0], Once}
	gathered := slices.IndexFunc(later, func(in Instr) bool { return in.Kind == Exchange && slices.Contains(in.Ops(), gather) })
	if gathered < 0 || !slices.Contains(later[gathered].Frees, part) {
		return nil, nil
	}
	for _, op := range s.Ops {
		reads := false
		op.Uses(func(v *ir.Value) { reads = reads || v == x.Param })
		if !reads {
			continue
		}
		if cut != nil || !isCut(op) {
			return nil, nil
		}
		cut = op
	}
	if cut == nil || slices.Contains(s.Outputs, cut.Outputs[0]) || !b.divides(x.Param, cut.Outputs[0], part.Value) {
		return nil, nil
	}
	return cut, x.Update
}

// changeOf is the collective that an op is; 0: none.
func changeOf(op *ir.Op) (axis ir.Axis, how ir.Collective) {
	if !op.IsExchange() {
		return 0, 0
	}
	return op.Change()
}

// isCut tells whether the op takes the replica's part out of a value.
func isCut(op *ir.Op) bool {
	return op.IsReshard() && !op.IsTransfer() && !op.IsExchange() && op.Outputs[0].On(ir.Replicas).Kind == ir.Flat
}

// divides tells whether the parts of all model replicas are as large, on every device, and so is the new one: nothing lies past the end.
func (b *builder) divides(whole, part, next *ir.Value) bool {
	for position := range max(whole.Devices(ir.Model), 1) {
		for replica := range b.s.Local.Replicas {
			at := ir.Coordinates{replica, position}
			n := part.LocalShape(at).Size()
			if n == 0 || n*b.s.Local.Replicas != whole.LocalShape(at).Size() || next.LocalShape(at).Size() != n || next.Shape.DType != whole.Shape.DType {
				return false
			}
		}
	}
	return true
}
