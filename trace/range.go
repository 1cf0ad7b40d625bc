// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// Range says which steps of a program a timeline has. The zero Range is the third, or the last one of a program with fewer:
// the first ones are slower than the others.
type Range struct {
	First, Last int // both included
}

const (
	usualStep = 3
	mostSteps = 100 // more is nothing that a person looks at
)

// ParseRange reads "3:6", the steps from the third to the sixth, or "5".
func ParseRange(text string) (Range, error) {
	first, last, several := strings.Cut(text, ":")
	if !several {
		last = first
	}
	var r Range
	var err1, err2 error
	r.First, err1 = strconv.Atoi(strings.TrimSpace(first))
	r.Last, err2 = strconv.Atoi(strings.TrimSpace(last))
	switch {
	case err1 != nil || err2 != nil:
		return Range{}, errors.Errorf("%q are no steps: write the first and the last one, as in 3:6, or one, as in 5", text)
	case r.First < 1:
		return Range{}, errors.Errorf("%q: the first step is 1", text)
	case r.Last < r.First:
		return Range{}, errors.Errorf("%q ends before it begins: write the first and the last step, as in 3:6", text)
	case r.Last-r.First >= mostSteps:
		return Range{}, errors.Errorf("%q are %d steps, and a timeline has at most %d", text, r.Last-r.First+1, mostSteps)
	}
	return r, nil
}

// Has tells whether a step is collected, and whether it takes the place of those before.
func (r Range) Has(step int) (has, replaces bool) {
	if r == (Range{}) {
		return step <= usualStep, true
	}
	return step >= r.First && step <= r.Last, false
}

// String writes the range as ParseRange reads it.
func (r Range) String() string {
	switch {
	case r == (Range{}):
		return strconv.Itoa(usualStep)
	case r.First == r.Last:
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d:%d", r.First, r.Last)
}
