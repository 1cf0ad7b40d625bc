// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"github.com/easyparallel/epl/comm/internal/transport"
	"github.com/easyparallel/epl/internal/checked"
)

// stream is what flows over a link, in checked records or as it is. Like a link it never blocks.
//
// Who reads or writes something, and is told that less of it was moved, comes back with the rest of it, in the same memory:
// a record is written in as many turns as it takes, and fills the reader's memory before it is known to be right. It is
// handed out as a whole, then. A record that is larger than the memory is kept aside, and copied.
type stream struct {
	link   link
	checks bool

	sealer   checked.Sealer
	outHead  [checked.HeadSize]byte
	headLeft int // of the record that is being written: bytes of its head
	dataLeft int // and of its data

	opener checked.Opener
	inHead [checked.HeadSize]byte
	headIn int // bytes of the head that have come
	record checked.Record
	filled int    // of the record's data
	aside  []byte // a record that does not fit where it is wanted
	ready  []byte // of it: checked, to be handed out
	ahead  []byte // what came behind a record
}

// writeSize is how much is written, or read, before others have their turn.
const writeSize = 256 << 10

// write takes some of b, and tells whether anything was written at all.
func (s *stream) write(b []byte) (n int, moved bool, err error) {
	if !s.checks {
		n, err = s.link.write(nil, b)
		return n, n > 0, err
	}
	if len(b) == 0 {
		return 0, false, nil
	}
	if s.headLeft == 0 && s.dataLeft == 0 {
		s.dataLeft = min(len(b), checked.MaxRecord)
		s.outHead, s.headLeft = s.sealer.Seal(b[:s.dataLeft]), checked.HeadSize
	}
	done, err := s.link.write(s.outHead[checked.HeadSize-s.headLeft:], b[:s.dataLeft])
	head := min(done, s.headLeft)
	n = done - head
	s.headLeft -= head
	s.dataLeft -= n
	return n, done > 0, err
}

// read fills some of b with what was checked, and tells whether anything has come at all.
func (s *stream) read(b []byte) (n int, moved bool, err error) {
	if !s.checks {
		n, err = s.link.read(nil, b)
		return n, n > 0, err
	}
	if len(b) == 0 {
		return 0, false, nil
	}
	if len(s.ready) > 0 {
		n = copy(b, s.ready)
		s.ready = s.ready[n:]
		return n, true, nil
	}
	for {
		if s.headIn < checked.HeadSize {
			if done, err := s.readHead(b); done == 0 || err != nil {
				return 0, moved, err
			}
			moved = true
			if s.headIn < checked.HeadSize {
				continue
			}
		}
		place := b
		if s.record.Size > len(b) {
			place = s.aside
		}
		if s.filled == s.record.Size {
			if err := s.record.Check(); err != nil {
				return 0, true, err
			}
			s.headIn = 0
			if s.record.Size <= len(b) {
				return s.record.Size, true, nil
			}
			n = copy(b, s.aside)
			s.ready = s.aside[n:]
			return n, true, nil
		}
		done, err := s.pull(nil, place[s.filled:s.record.Size])
		if done == 0 || err != nil {
			return 0, moved, err
		}
		moved = true
		s.record.Add(place[s.filled : s.filled+done])
		s.filled += done
	}
}

// readHead reads the rest of a head, and with it what follows: its data, most likely. It returns how much has come.
func (s *stream) readHead(b []byte) (int, error) {
	missing := checked.HeadSize - s.headIn
	done, err := s.pull(s.inHead[s.headIn:], b)
	s.headIn += min(done, missing)
	if err != nil || s.headIn < checked.HeadSize {
		return done, err
	}
	if s.record, err = s.opener.Open(&s.inHead); err != nil {
		return done, err
	}
	data := b[:done-missing]
	s.filled = min(len(data), s.record.Size)
	s.ahead = append(s.ahead, data[s.filled:]...)
	if s.record.Size > len(b) {
		s.aside = transport.Grow(s.aside, s.record.Size)
		copy(s.aside, data)
	}
	s.record.Add(data[:s.filled])
	return done, nil
}

// pull fills some of a, then of b, from the link. What came earlier is used up first, and then no more than is asked for.
func (s *stream) pull(a, b []byte) (n int, err error) {
	switch {
	case len(s.ahead) == 0:
		s.ahead = nil
		return s.link.read(a, b)
	case len(a) > 0:
		n = copy(a, s.ahead)
	default:
		n = copy(b, s.ahead)
	}
	s.ahead = s.ahead[n:]
	return n, nil
}
