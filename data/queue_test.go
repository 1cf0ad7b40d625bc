// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data

import (
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/ml/train"
)

// counting yields batches whose spec is their number, and tells how many were read.
func counting(n int, read *int, end error) iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for i := range n {
			*read = i + 1
			if !yield(train.Batch{Spec: i}, nil) {
				return
			}
		}
		if end != nil {
			yield(train.Batch{}, end)
		}
	}
}

func specs(batches []train.Batch) (s []int) {
	for _, b := range batches {
		s = append(s, b.Spec.(int))
	}
	return s
}

func TestBatchesComeInOrderAndFewerOnlyAtTheEnd(t *testing.T) {
	var read int
	q := newQueue(counting(10, &read, nil))
	defer q.close()
	next := 0
	for _, c := range []struct{ ask, want int }{{1, 1}, {3, 3}, {0, 0}, {1, 1}, {3, 3}, {1, 1}, {3, 1}, {1, 0}} {
		got, err := q.take(c.ask, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != c.want {
			t.Errorf("asked for %d, got %d, want %d", c.ask, len(got), c.want)
		}
		for _, s := range specs(got) {
			if s != next {
				t.Errorf("batch %d comes where %d should", s, next)
			}
			next++
		}
	}
}

func TestReadingStaysAStepAhead(t *testing.T) {
	var read int
	q := newQueue(counting(1000, &read, nil))
	for range 5 { // steps of 4
		if _, err := q.take(1, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := q.take(3, nil); err != nil {
			t.Fatal(err)
		}
	}
	q.close()
	if ahead := read - 20; ahead > 6 {
		t.Errorf("%d batches were read ahead of steps of 4", ahead)
	}
}

func TestAnErrorComesAfterTheBatchesBeforeIt(t *testing.T) {
	var read int
	q := newQueue(counting(2, &read, errors.New("broken")))
	defer q.close()
	if got, err := q.take(2, nil); err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if _, err := q.take(1, nil); err == nil || err.Error() != "broken" {
		t.Errorf("got %v", err)
	}
}

func TestABatchThatDoesNotFitIsTheNext(t *testing.T) {
	var read int
	q := newQueue(counting(6, &read, errors.New("broken")))
	defer q.close()
	below := func(n int) func(train.Batch) bool { return func(b train.Batch) bool { return b.Spec.(int) < n } }
	for _, c := range []struct {
		ask, below int
		want       []int
	}{{4, 2, []int{0, 1}}, {4, 2, nil}, {1, 9, []int{2}}, {3, 4, []int{3}}, {2, 9, []int{4, 5}}} {
		got, err := q.take(c.ask, below(c.below))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(specs(got), c.want) {
			t.Errorf("asked for %d below %d, got %v, want %v", c.ask, c.below, specs(got), c.want)
		}
	}
	if _, err := q.take(1, below(9)); err == nil || err.Error() != "broken" {
		t.Errorf("got %v", err)
	}
}

func TestAPanicIsAnError(t *testing.T) {
	q := newQueue(func(func(train.Batch, error) bool) { panic("no disk") })
	defer q.close()
	if _, err := q.take(1, nil); err == nil || !strings.Contains(err.Error(), "the dataset panicked: no disk") {
		t.Errorf("got %v", err)
	}
}

func TestAPanicAfterAnErrorIsNotLost(t *testing.T) {
	q := newQueue(func(yield func(train.Batch, error) bool) {
		defer func() { panic("no disk") }()
		yield(train.Batch{}, errors.New("no such file"))
	})
	defer q.close()
	if _, err := q.take(1, nil); err == nil || !strings.Contains(err.Error(), "no such file; then the dataset panicked: no disk") {
		t.Errorf("got %v", err)
	}
}

func TestClosingEndsAReaderThatWaitsForRoom(t *testing.T) {
	var read int
	q := newQueue(counting(1000, &read, nil))
	q.close() // returns only when the reader has ended
	if read > 2 {
		t.Errorf("%d batches were read although nobody asked", read)
	}
}
