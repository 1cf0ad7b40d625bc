// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// Model replicas on one host have one copy of a variable, in common memory, if each of them updates a part of it. Nothing is gathered then: a replica overwrites its part when
// all have come to that, and so have read the old value, and reads the new one when all have done it.
//
// All of them agree on it in every step, because each may have a reason to leave the variable alone: somebody reads it, or it was set by the user. Then it gets memory that
// is new: that of each replica, or common memory again.

// commons is what a device knows of common memory.
type commons struct {
	never bool // some replica cannot have it
	of    map[*ir.Value]*stay
	told  []int64
}

// stay is when a variable was in common memory, as all replicas know.
type stay struct {
	since uint64 // the step in which it came there
	left  uint64 // that in which it left; 0: it is there
	wait  uint64 // how many steps later it may come again
}

// LeastCommon is from how many bytes on a variable comes to common memory: less is gathered with what else there is. Tests of small models lower it.
var LeastCommon = 64 << 10

// rejoin is after how many steps a variable that has left common memory gets some again: pages that are new cost more than a gather. If it was not there for as long, because
// somebody reads it again and again, it waits twice as long each time, up to rejoinMost.
const rejoin, rejoinMost = 16, 1024

// comingBytes is how much comes to common memory in a step, besides a first variable: until the step ends the replicas have their own copies, too.
var comingBytes = 256 << 20

// Whether a replica lets a variable come to common memory.
const (
	neverCommon int64 = iota
	notNow
	mayBeCommon
)

// commonOf is the common memory of a buffer; nil: it has its own.
func commonOf(b compute.Buffer) emit.CommonMemory {
	if a, ok := b.(emit.AdoptedBuffer); ok {
		return a.Adopted()
	}
	return nil
}

// commonKey tells common memory of so many ranks apart; 0: the buffer has none, or others have it, too, because another program divides the devices otherwise.
func commonKey(b compute.Buffer, ranks int) int64 {
	m := commonOf(b)
	if m == nil || m.Ranks() != ranks {
		return 0
	}
	return m.(*comm.CommonMemory).ID()
}

// common lets model replicas agree on which variables they update in common memory. Those that lie there and cannot be are not overwritten.
func (r *run) common(all []*owning, others []readers) error {
	agreed, err := r.inCommon(all, others)
	if err != nil {
		return err
	}
	for i, x := range all {
		if commonOf(x.whole) != nil && (agreed == nil || !agreed[i]) {
			x.mine = false
		}
	}
	return nil
}

// inCommon returns which variables all model replicas may overwrite in common memory; nil: none. Others may come there.
func (r *run) inCommon(all []*owning, others []readers) (agreed []bool, err error) {
	c := &r.device.commons
	if len(all) == 0 || c.never {
		return nil, nil
	}
	end, err := r.end(r.peers(), r.opts.Communicators+1)
	if err != nil {
		return nil, err
	}
	if !end.Group().OnOneHost() || end.Size() == 1 {
		c.never = true
		return nil, nil
	}
	c.told = c.told[:0]
	for _, x := range all {
		key := commonKey(x.whole, end.Size())
		if key != 0 {
			if !r.runner.leaves(others[x.Input]) {
				others[x.Input].wait()
			}
			if !x.mine || !others[x.Input].over() {
				key = 0
			}
		}
		c.told = append(c.told, key, -key, r.mayJoin(x))
	}
	if err := end.Do(comm.Call{Op: comm.AllReduce, Buf: c.told, Reduction: comm.Min, Program: r.program.Name}); err != nil {
		return nil, err
	}
	var come []*owning
	agreed = make([]bool, len(all))
	for i, x := range all {
		key, other, may := c.told[3*i], c.told[3*i+1], c.told[3*i+2]
		c.never = c.never || may == neverCommon
		if agreed[i] = key != 0 && key == -other; agreed[i] {
			continue
		}
		if s := c.of[x.New]; s != nil && s.left == 0 {
			s.leave(r.count)
		}
		if may == mayBeCommon {
			come = append(come, x)
		}
	}
	return agreed, r.come(end, come)
}

// mayJoin tells whether a replica lets a variable come to common memory.
func (r *run) mayJoin(x *owning) int64 {
	_, can := r.device.backend.(emit.Adopter)
	if !can || r.opts.Check != nil || r.opts.Flip != nil { // checks compare what each has
		return neverCommon
	}
	shape := x.New.LocalShape(r.at())
	if s := r.device.commons.of[x.New]; s != nil && (s.left == 0 || r.count-s.left < s.wait) || int(shape.ByteSize()) < LeastCommon || shape.DType.IsPacked() {
		return notNow
	}
	return mayBeCommon
}

func (s *stay) leave(now uint64) {
	s.left = now
	if now-s.since < rejoin {
		s.wait = min(2*s.wait, rejoinMost)
	} else {
		s.wait = rejoin
	}
}

// come makes common memory for variables, which they come to when all replicas have put their parts there. Each has memory of its own: it is gone when the variable leaves it.
func (r *run) come(end *comm.Communicator, all []*owning) error {
	c, coming := &r.device.commons, 0
	for _, x := range all {
		bytes := int(x.New.LocalShape(r.at()).ByteSize())
		if coming += bytes; coming > bytes && coming > comingBytes {
			return nil
		}
		m, err := end.Common(bytes, r.program.Name)
		if err != nil {
			return err
		}
		if m == nil {
			c.never = true
			return nil
		}
		r.joining[x.New] = m
		if c.of == nil {
			c.of = map[*ir.Value]*stay{}
		}
		if c.of[x.New] == nil {
			c.of[x.New] = &stay{wait: rejoin / 2}
		}
		c.of[x.New].since, c.of[x.New].left = r.count, 0
	}
	return nil
}

// joins puts the replica's part of a variable into common memory, and returns what then has all of it.
func (r *run) joins(x *crossing, m *comm.CommonMemory) error {
	delete(r.joining, x.out)
	defer m.Release()
	x.b = x.backend.(emit.Adopter).Adopt(m, x.shape)
	var err error
	if x.to, _, err = hostView(x.backend, x.b, x.shape); err != nil {
		return err
	}
	n := x.out.Op.Inputs[0].LocalShape(r.at()).Size()
	copyFlat(slice(x.to, r.replica*n, (r.replica+1)*n), x.from)
	x.common = true
	return nil
}
