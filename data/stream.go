// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data

import (
	"iter"

	"github.com/pkg/errors"
)

// stream reads a sequence ahead of its use, in a goroutine of its own. An error, or a panic, ends it.
type stream[T any] struct {
	items   chan item[T]
	stopped chan struct{} // closed: nobody wants more
}

type item[T any] struct {
	value T
	err   error
}

// start begins to read, up to ahead items more than were taken.
func start[T any](seq iter.Seq2[T, error], ahead int) *stream[T] {
	s := &stream[T]{make(chan item[T], ahead), make(chan struct{})}
	go s.read(seq)
	return s
}

func (s *stream[T]) read(seq iter.Seq2[T, error]) {
	defer close(s.items)
	defer func() {
		if p := recover(); p != nil {
			s.put(item[T]{err: errors.Errorf("panicked: %v", p)})
		}
	}()
	for value, err := range seq {
		if !s.put(item[T]{value, err}) || err != nil {
			return
		}
	}
}

func (s *stream[T]) put(i item[T]) bool {
	select {
	case s.items <- i:
		return true
	case <-s.stopped:
		return false
	}
}

// next waits for an item. There is none at the end.
func (s *stream[T]) next() (T, error, bool) {
	i, ok := <-s.items
	return i.value, i.err, ok
}

// stop ends the reading and waits for it.
func (s *stream[T]) stop() {
	close(s.stopped)
	for range s.items { //nolint:revive // until it is closed
	}
}
