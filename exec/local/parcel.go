// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"reflect"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/schedule"
)

// Between workers every call costs a journey, however little it carries, so that small values of a bucket travel together.
// Larger ones are not worth the copies.
const (
	smallBytes  = schedule.SmallBytes
	parcelBytes = 1 << 20
)

// parcel is values that are reduced by one call: of one type and scale.
type parcel struct {
	scale  float64
	parts  []*part
	values []any    // by part: where the result goes, too
	before []func() // by part: makes the value, see [comm.Call]; nil if it is there
	bytes  int
}

// allReduce queues the reduction of a value: at once, or with others when the bucket is complete. before is nil, or makes the value
// when the call has its turn, which is its own then.
func (r *run) allReduce(c circle, m *merging, p *part, flat any, scale float64, before func()) {
	bytes := len(dtypes.UnsafeByteSliceFromAny(flat))
	if r.job == nil || bytes > smallBytes {
		if before != nil || r.job != nil { // between workers each buffer has a journey of its own
			r.start(c, p, comm.Call{Op: comm.AllReduce, Buf: flat, Reduction: comm.Sum, Scale: scale, Before: before})
			return
		}
		if m.call.Buf == nil {
			m.call = comm.Call{Op: comm.AllReduce, Buf: flat, Reduction: comm.Sum, Scale: scale, Program: r.program.Name}
		} else {
			m.call.More = append(m.call.More, comm.Buffers{Buf: flat})
		}
		m.called = append(m.called, p)
		return
	}
	var to *parcel
	for _, x := range m.parcels {
		if x.scale == scale && x.bytes+bytes <= parcelBytes && reflect.TypeOf(x.values[0]) == reflect.TypeOf(flat) {
			to = x
		}
	}
	if to == nil {
		to = &parcel{scale: scale}
		m.parcels = append(m.parcels, to)
	}
	to.parts, to.values, to.before, to.bytes = append(to.parts, p), append(to.values, flat), append(to.before, before), to.bytes+bytes
}

// sendParcels queues the reductions of what is reduced where it is, and of what was packed.
func (r *run) sendParcels(c circle, m *merging) {
	if len(m.called) > 0 {
		h := c.end.Start(m.call)
		for _, p := range m.called {
			p.calls = append(p.calls, h)
		}
	}
	for _, x := range m.parcels {
		if len(x.parts) == 1 {
			r.start(c, x.parts[0], comm.Call{Op: comm.AllReduce, Buf: x.values[0], Reduction: comm.Sum, Scale: x.scale, Before: x.before[0]})
			continue
		}
		n := 0
		for _, v := range x.values {
			n += reflect.ValueOf(v).Len()
		}
		all := reflect.MakeSlice(reflect.TypeOf(x.values[0]), n, n)
		pack := func() {
			at := 0
			for i, v := range x.values {
				if x.before[i] != nil {
					x.before[i]()
				}
				at += reflect.Copy(all.Slice(at, n), reflect.ValueOf(v))
			}
		}
		h := c.end.Start(comm.Call{Op: comm.AllReduce, Buf: all.Interface(), Reduction: comm.Sum, Scale: x.scale, Program: r.program.Name, Before: pack})
		at := 0
		for i, p := range x.parts {
			to := reflect.ValueOf(x.values[i])
			from := all.Slice(at, at+to.Len())
			at += to.Len()
			p.calls = append(p.calls, h)
			then := p.finish
			p.finish = func() error {
				reflect.Copy(to, from)
				if then != nil {
					return then()
				}
				return nil
			}
		}
	}
}
