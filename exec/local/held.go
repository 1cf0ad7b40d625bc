// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/schedule"
)

// held is a value on a device with what the meter knows of it, which it must not ask of a buffer that someone consumed.
type held struct {
	compute.Buffer
	use   schedule.Use
	bytes int64
	sends []sending // that read it
	// arrival, if it is not nil, waits for a value that is on its way; op and what say how it comes, in a timeline.
	arrival  func() (compute.Buffer, error)
	borrowed bool           // the caller's: not to be overwritten or freed
	whole    compute.Buffer // of a part of a variable that was updated where it lies: what has its memory
	readers  readers        // of a variable
	handed   []*handover    // those that copy it without the host, also if they have begun
	op, what string
}

// arrive waits until the value is there.
func (h *held) arrive() error {
	if h.arrival == nil {
		return nil
	}
	b, err := h.arrival()
	if err != nil {
		h.arrival = func() (compute.Buffer, error) { return nil, err } // it will never be there
		return err
	}
	h.Buffer, h.arrival = b, nil
	return nil
}

// sending is somebody else who reads a value.
type sending interface{ Over() bool }

// sending tells whether somebody else still reads the value.
func (h *held) sending() bool {
	h.sends = slices.DeleteFunc(h.sends, sending.Over)
	return len(h.sends) > 0
}
