// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// invitation is what the member that makes a segment tells the others: where it is. They answer with a byte.
type invitation struct{ Version, PID, FD, Size, ID uint64 }

const (
	accepted = iota + 1
	declined // the segment cannot be opened
)

// join makes or opens the segment of some members for a purpose, and returns when all have done so; nil if one of them
// cannot. The first makes it. layOut places what it holds.
func (e *engine) join(k *transport.Call, members []int, purpose string, layOut func(*places)) (*segment, error) {
	s := &segment{engine: e, members: members, me: slices.Index(members, e.team.Me)}
	var all places
	s.layOut(&all)
	layOut(&all)
	page := os.Getpagesize()
	size := (all.size + page - 1) / page * page
	open := s.accept
	if s.me == 0 {
		open = s.create
	}
	if err := open(k, e.team.Name+" shared memory "+purpose, size); err != nil {
		s.unmap()
		return nil, err
	}
	if s.memory == nil {
		return nil, nil
	}
	e.mu.Lock()
	e.segments = append(e.segments, s) // from here on fail wakes us, and close unmaps it
	e.mu.Unlock()
	return s.introduce(k)
}

// create makes the segment and invites the others.
func (s *segment) create(k *transport.Call, purpose string, size int) error {
	e := s.engine
	fd, memory, err := createMemory("epl-segment", size, size)
	if err != nil {
		return errors.WithMessagef(err, "epl: worker %d cannot begin %s", e.team.Members[e.team.Me].Worker, k.Header)
	}
	defer unix.Close(fd)
	s.use(memory)
	s.head.id, s.head.version, s.head.size = random(), segmentVersion, uint64(size)
	letter := invitation{segmentVersion, uint64(os.Getpid()), uint64(fd), uint64(size), s.head.id}
	answers := make([]atomic.Uint32, len(s.members))
	invite := func(i int) func(c net.Conn) error {
		return func(c net.Conn) error {
			answer := []byte{0}
			if err := binary.Write(c, binary.BigEndian, letter); err != nil {
				return err
			}
			if _, err := c.Read(answer); err != nil {
				return err
			}
			answers[i].Store(uint32(answer[0]))
			return nil
		}
	}
	answered := func(i int) bool { return answers[i].Load() != 0 }
	err = e.connecting(k, func() []int { return s.without(answered) }, func(ctx context.Context) error {
		var all errgroup.Group
		for i := 1; i < len(s.members); i++ {
			all.Go(func() error { return e.talk(ctx, s.members[i], purpose, invite(i)) })
		}
		return all.Wait()
	})
	if err != nil {
		return err
	}
	for i := range s.members {
		if answers[i].Load() == declined {
			s.head.refused.Store(1)
			for _, p := range s.peers {
				p.bell.wakeAll()
			}
			s.unmap()
			break
		}
	}
	return nil
}

// accept opens the segment that the first member has made.
func (s *segment) accept(k *transport.Call, purpose string, size int) error {
	e := s.engine
	maker := s.members[0]
	return e.connecting(k, func() []int { return []int{maker} }, func(ctx context.Context) error {
		return e.talk(ctx, maker, purpose, func(c net.Conn) error {
			var letter invitation
			if err := binary.Read(c, binary.BigEndian, &letter); err != nil {
				return err
			}
			if letter.Version != segmentVersion || letter.Size != uint64(size) {
				return errors.Errorf("it lays out shared memory in another way (version %d, %d bytes) than worker %d (version %d, %d bytes); "+
					"run the same program on all workers", letter.Version, letter.Size, e.team.Members[e.team.Me].Worker, segmentVersion, size)
			}
			answer := []byte{declined}
			if memory, err := openMemory(letter.PID, letter.FD, size); err == nil {
				s.use(memory)
				if s.head.id == letter.ID && s.head.version == letter.Version && s.head.size == letter.Size {
					answer[0] = accepted
				} else {
					s.unmap()
				}
			}
			_, err := c.Write(answer)
			return err
		})
	})
}

// connecting runs f, whose context ends when the engine fails or somebody is overdue.
func (e *engine) connecting(k *transport.Call, missing func() []int, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(e.ctx)
	defer cancel(nil)
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(nap)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if err := e.team.Overdue(k, missing()); err != nil {
					cancel(err)
					return
				}
			}
		}
	})
	err := f(ctx)
	close(over)
	watch.Wait()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// talk connects to a member and lets f speak with it.
func (e *engine) talk(ctx context.Context, member int, purpose string, f func(net.Conn) error) error {
	worker := e.team.Members[member].Worker
	c, err := e.team.World.Mesh.Connect(ctx, worker, purpose)
	if err == nil {
		defer c.Close()
		stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Now()) })
		defer stop()
		err = f(c)
	}
	if err != nil && ctx.Err() == nil {
		return e.because(errors.Errorf("epl: worker %d cannot share memory with worker %d: %s", e.team.Members[e.team.Me].Worker, worker, err))
	}
	return err
}

// introduce tells the others who this member is, and returns when all have done so; nil if one of them declined.
func (s *segment) introduce(k *transport.Call) (*segment, error) {
	me := s.mine()
	s.trials = make([]uint64, len(s.members))
	me.pid, me.trialsAt = uint64(os.Getpid()), uint64(uintptr(unsafe.Pointer(&s.trials[0])))
	at := func(state uint32) func(int) bool { return func(i int) bool { return s.peers[i].state.Load() >= state } }
	become := func(state, others uint32) error {
		me.state.Store(state)
		s.ringAll()
		missing := func() []int { return s.without(at(others)) }
		return s.wait(k, func() bool { return s.head.refused.Load() != 0 || missing() == nil }, missing)
	}
	if err := become(present, present); err != nil {
		return nil, err
	}
	if s.head.refused.Load() != 0 {
		return nil, nil
	}
	state := uint32(reachesOthers)
	for i := range s.peers {
		if i != s.me && !s.reaches(i) {
			state = reachesSome
		}
	}
	err := become(state, reachesSome)
	s.lends = state == reachesOthers && s.without(at(reachesOthers)) == nil
	return s, err
}

// reaches tries whether this member can write another's own memory, and read it.
func (s *segment) reaches(i int) bool {
	p, tried, read := s.peers[i], random(), uint64(0)
	at := p.trialsAt + 8*uint64(s.me)
	return writeMemory(p.pid, unsafe.Pointer(&tried), at, 8) == nil &&
		readMemory(p.pid, unsafe.Pointer(&read), at, 8) == nil && read == tried
}
