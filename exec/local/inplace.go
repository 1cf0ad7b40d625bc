// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"reflect"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/schedule"
)

// owning is a part of a variable that a segment is about to update where it lies.
type owning struct {
	schedule.Own
	at    schedule.Slot  // of the variable
	whole compute.Buffer // the variable; nil: the part is a copy
	part  compute.Buffer
	flat  any  // of the part in the variable
	mine  bool // nobody else needs the old value
	given bool // the device was given the part, to write the new one there
}

// own lets the inputs of a segment be parts of variables. What it may keep are the parts that the device overwrites.
func (r *run) own(in schedule.Instr, ins []compute.Buffer, donate []bool, others []readers) (all []*owning, err error) {
	s, takes := r.schedule.Segments[in.Segment], r.schedule.Takes(in)
	for _, own := range s.Owns {
		i := own.Input
		x := &owning{Own: own, at: takes[i], whole: ins[i]}
		if err := x.cut(r, s.Inputs[i].LocalShape(r.at()), donate[i]); err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	if err := r.common(all, others); err != nil {
		return nil, err
	}
	for _, x := range all {
		x.given = x.mine && r.profiles[in.Segment].Overwrites(x.Own)
		ins[x.Input], donate[x.Input] = x.part, x.given
	}
	return all, nil
}

// cut finds the part: in the variable, if the device can.
func (x *owning) cut(r *run, shape shapes.Shape, mine bool) error {
	flat, shared, err := hostView(r.device.backend, x.whole, x.New.LocalShape(r.at()))
	if err != nil {
		return err
	}
	from := r.replica * shape.Size()
	x.flat = slice(flat, from, from+shape.Size())
	if p, ok := r.device.backend.(exec.Parter); ok && shared {
		if x.part = p.Part(x.whole, from, shape); x.part != nil {
			x.mine = mine
			return nil
		}
	}
	x.whole = nil
	x.part, err = r.device.backend.BufferFromFlatData(0, x.flat, shape)
	return err
}

// updated sees to it that new parts lie where the old ones were: it copies those that the device has written elsewhere. Variables that somebody still reads are left
// alone, and so is what is new of them.
func (r *run) updated(all []*owning, outs []compute.Buffer, donate []bool, others []readers) error {
	for _, x := range all {
		if x.given {
			x.mine = donate[x.Input]
		} else if x.mine = x.mine && !r.runner.leaves(others[x.Input]); x.mine {
			others[x.Input].wait()
			r.forget(x.at)
		}
		if !x.mine {
			if err := x.part.Finalize(); err != nil {
				return err
			}
			continue
		}
		new, err := outs[x.Output].Data()
		if err != nil {
			return err
		}
		if reflect.ValueOf(new).Pointer() == reflect.ValueOf(x.flat).Pointer() {
			continue
		}
		copyFlat(x.flat, new)
		shape, err := outs[x.Output].Shape()
		if err != nil {
			return err
		}
		if err := outs[x.Output].Finalize(); err != nil {
			return err
		}
		n := shape.Size()
		outs[x.Output] = r.device.backend.(exec.Parter).Part(x.whole, r.replica*n, shape)
	}
	return nil
}

// keepParts keeps the parts that were updated where they lie, each as all of its variable.
func (r *run) keepParts(all []*owning, gives []schedule.Slot, outs []compute.Buffer) error {
	for _, x := range all {
		if !x.mine {
			continue
		}
		h := r.device.memory.newHeld()
		h.Buffer, h.whole, h.use, h.bytes = outs[x.Output], x.whole, r.ledger.Use(x.New), bytesOf(x.whole)
		r.values[gives[x.Output]] = h
		if err := r.meter.add(h.use, h.bytes); err != nil {
			return err
		}
	}
	return nil
}
