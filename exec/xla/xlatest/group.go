// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xlatest

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
)

// group computes a segment that devices run together. The last device that comes computes for all: pieces without collectives on the pure-Go backend,
// collectives here, device by device.
type group struct {
	inner   compute.Backend
	segment *ir.Segment
	pieces  []piece
	name    string // differs between modules, and is the same in all processes
	opening opening
	here    []int // ranks of this process

	mu     sync.Mutex
	next   *round
	rounds int
}

// piece is a segment without collectives, or a collective.
type piece struct {
	*ir.Segment
	exec       compute.Executable
	collective *ir.Op
}

// round is one run, by rank.
type round struct {
	args map[int][][]byte
	outs map[int][][]byte
	err  error
	done chan struct{}
}

func newGroup(inner compute.Backend, s *ir.Segment, name string, o opening) *group {
	g := &group{inner: inner, segment: s, name: name, opening: o}
	first := 0
	for _, n := range o.Workers[:o.Worker] {
		first += n
	}
	for _, r := range s.Mesh.Ranks {
		if o.Peers == nil || r >= first && r < first+o.Needed() {
			g.here = append(g.here, r)
		}
	}
	var ops []*ir.Op
	flush := func(rest []*ir.Op) {
		if len(ops) == 0 {
			return
		}
		made, leaves := map[*ir.Value]bool{}, map[*ir.Value]bool{}
		x := &ir.Segment{Name: s.Name, Ops: ops}
		for _, op := range ops {
			op.Uses(func(v *ir.Value) {
				if !made[v] && !slices.Contains(x.Inputs, v) {
					x.Inputs = append(x.Inputs, v)
				}
			})
			for _, v := range op.Outputs {
				made[v] = true
			}
		}
		leave := func(v *ir.Value) {
			if made[v] && !leaves[v] {
				leaves[v] = true
				x.Outputs = append(x.Outputs, v)
			}
		}
		for _, op := range rest {
			op.Uses(leave)
		}
		for _, v := range s.Outputs {
			leave(v)
		}
		if ops = nil; len(x.Outputs) > 0 {
			g.pieces = append(g.pieces, piece{Segment: x})
		}
	}
	for i, op := range s.Ops {
		if op.Type() != ir.OpCommunicate {
			ops = append(ops, op)
			continue
		}
		flush(s.Ops[i:])
		g.pieces = append(g.pieces, piece{collective: op})
	}
	flush(nil)
	return g
}

// opening is that of a worker whose fake, as those of all workers, has so many devices.
type opening struct {
	exec.Opening
	devices int
}

// rank is that of a device, by its number in a client over all workers.
func (o opening) rank(device int) (rank int) {
	if o.Peers == nil {
		return device
	}
	for _, n := range o.Workers[:device/o.devices] {
		rank += n
	}
	return rank + device%o.devices
}

// run computes what one device has of the outputs.
func (g *group) run(device int, args [][]byte) ([][]byte, error) {
	device = g.opening.rank(device)
	g.mu.Lock()
	if g.next == nil {
		g.next = &round{args: map[int][][]byte{}, done: make(chan struct{})}
	}
	r := g.next
	if r.args[device] = args; len(r.args) == len(g.here) {
		g.next = nil
		if r.err = g.exchange(r); r.err == nil {
			r.outs, r.err = g.compute(r)
		}
		close(r.done)
	}
	g.mu.Unlock()
	<-r.done
	return r.outs[device], r.err
}

// exchange gives other processes what devices of this one have, and gets what theirs have: each computes everything.
func (g *group) exchange(r *round) error {
	g.rounds++
	key := func(rank int) string {
		return fmt.Sprintf("test/%s/%v/%d/%d", g.name, g.segment.Mesh.Ranks, g.rounds, rank)
	}
	for _, rank := range g.segment.Mesh.Ranks {
		if args := r.args[rank]; args != nil && len(g.here) < len(g.segment.Mesh.Ranks) {
			var b bytes.Buffer
			if err := gob.NewEncoder(&b).Encode(args); err != nil {
				return err
			}
			if err := g.opening.Peers.Put(key(rank), b.Bytes()); err != nil {
				return err
			}
		}
	}
	for _, rank := range g.segment.Mesh.Ranks {
		if r.args[rank] != nil {
			continue
		}
		data, err := g.opening.Peers.Get(context.Background(), key(rank))
		if err != nil {
			return err
		}
		var args [][]byte
		if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&args); err != nil {
			return err
		}
		r.args[rank] = args
	}
	return nil
}

// compute runs all devices.
func (g *group) compute(r *round) (map[int][][]byte, error) {
	has := make([]map[*ir.Value][]byte, len(g.segment.Mesh.Ranks))
	for d, rank := range g.segment.Mesh.Ranks {
		has[d] = map[*ir.Value][]byte{}
		for i, v := range g.segment.Inputs {
			has[d][v] = r.args[rank][i]
		}
	}
	for i := range g.pieces {
		p := &g.pieces[i]
		if p.collective != nil {
			if err := collective(p.collective, has); err != nil {
				return nil, err
			}
			continue
		}
		if p.exec == nil {
			var err error
			if p.exec, err = emit.Segment(g.inner, p.Segment); err != nil {
				return nil, err
			}
		}
		for d := range has {
			var args [][]byte
			for _, v := range p.Inputs {
				args = append(args, has[d][v])
			}
			outs, err := execute(g.inner, p.exec, p.Segment, args)
			if err != nil {
				return nil, err
			}
			for i, v := range p.Outputs {
				has[d][v] = outs[i]
			}
		}
	}
	all := map[int][][]byte{}
	for d, rank := range g.segment.Mesh.Ranks {
		for _, v := range g.segment.Outputs {
			all[rank] = append(all[rank], slices.Clone(has[d][v]))
		}
	}
	return all, nil
}

// collective changes what the devices have.
func collective(op *ir.Op, has []map[*ir.Value][]byte) error {
	a, v, out := op.Attrs.(*ir.Communicate), op.Inputs[0], op.Outputs[0]
	for _, group := range a.Groups {
		var from [][]byte
		for _, d := range group {
			from = append(from, has[d][v])
		}
		for i, d := range group {
			to := make([]byte, out.Shape.ByteSize())
			switch a.How {
			case ir.AllReduceOf, ir.ReduceScatterOf:
				sum := slices.Clone(from[0])
				for _, x := range from[1:] {
					if err := reduce(sum, x, v.Shape, a.Reduce); err != nil {
						return err
					}
				}
				if a.How == ir.AllReduceOf {
					to = sum
				} else {
					rows(v.Shape, a.Dim, i*out.Shape.Dimensions[a.Dim], out.Shape.Dimensions[a.Dim], sum, to, false)
				}
			case ir.AllGatherOf:
				for j, x := range from {
					rows(out.Shape, a.Dim, j*v.Shape.Dimensions[a.Dim], v.Shape.Dimensions[a.Dim], to, x, true)
				}
			case ir.AllToAllOf:
				part := v.Shape.Clone()
				part.Dimensions[a.Split] /= len(group)
				for j, x := range from {
					piece := make([]byte, part.ByteSize())
					rows(v.Shape, a.Split, i*part.Dimensions[a.Split], part.Dimensions[a.Split], x, piece, false)
					rows(out.Shape, a.Dim, j*part.Dimensions[a.Dim], part.Dimensions[a.Dim], to, piece, true)
				}
			default:
				return errors.Errorf("unknown collective %s", a.How)
			}
			has[d][out] = to
		}
	}
	return nil
}

// rows copies rows of a tensor into a part, or, back, out of it.
func rows(whole shapes.Shape, dim, start, n int, all, part []byte, back bool) {
	inner, outer := int(whole.DType.Size()), 1
	for _, k := range whole.Dimensions[dim+1:] {
		inner *= k
	}
	for _, k := range whole.Dimensions[:dim] {
		outer *= k
	}
	for i := range outer {
		x, y := all[(i*whole.Dimensions[dim]+start)*inner:][:n*inner], part[i*n*inner:][:n*inner]
		if back {
			x, y = y, x
		}
		copy(y, x)
	}
}

// reduce adds x to sum, or takes the larger or smaller.
func reduce(sum, x []byte, s shapes.Shape, by ir.Reduction) error {
	if len(sum) == 0 {
		return nil
	}
	switch s.DType {
	case dtypes.Float32:
		each(sum, x, by, func(v float32) float64 { return float64(v) }, func(v float64) float32 { return float32(v) })
	case dtypes.Float64:
		each(sum, x, by, func(v float64) float64 { return v }, func(v float64) float64 { return v })
	case dtypes.Int32:
		each(sum, x, by, func(v int32) float64 { return float64(v) }, func(v float64) int32 { return int32(v) })
	case dtypes.Int64:
		each(sum, x, by, func(v int64) float64 { return float64(v) }, func(v float64) int64 { return int64(v) })
	case dtypes.BFloat16:
		each(sum, x, by, func(v bfloat16.BFloat16) float64 { return float64(v.Float32()) }, func(v float64) bfloat16.BFloat16 { return bfloat16.FromFloat32(float32(v)) })
	case dtypes.Float16:
		each(sum, x, by, func(v float16.Float16) float64 { return float64(v.Float32()) }, func(v float64) float16.Float16 { return float16.FromFloat32(float32(v)) })
	default:
		return fmt.Errorf("%s is not reduced here", s)
	}
	return nil
}

func each[T any](sum, x []byte, by ir.Reduction, from func(T) float64, to func(float64) T) {
	size := int(unsafe.Sizeof(*new(T)))
	a, b := unsafe.Slice((*T)(unsafe.Pointer(&sum[0])), len(sum)/size), unsafe.Slice((*T)(unsafe.Pointer(&x[0])), len(x)/size)
	for i := range a {
		p, q := from(a[i]), from(b[i])
		switch by {
		case ir.ReduceByMax:
			p = max(p, q)
		case ir.ReduceByMin:
			p = min(p, q)
		default:
			p += q
		}
		a[i] = to(p)
	}
}
