// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"sync/atomic"

	"github.com/pkg/errors"
)

// handle is an object of C that Go owns and that belongs to a client. It is freed when it was closed and no call uses it any
// more, so that Close is safe while other goroutines use the object.
type handle struct {
	client *Client
	ptr    uintptr      // of C; valid between acquire and release
	state  atomic.Int64 // the calls under way, plus closing once Close was called
	self   object

	prev, next *handle // the client's list of open objects; guarded by Client.mu
}

// object is what embeds a handle.
type object interface {
	kind() string     // such as "buffer"
	describe() string // such as "buffer F32[4 4]"
	destroy() error   // frees the object of C
}

const closing = 1 << 62

// own makes the client responsible for an object of C. The client must be entered, or another of its objects be in use.
func (h *handle) own(c *Client, ptr uintptr, self object) {
	h.client, h.ptr, h.self = c, ptr, self
	c.mu.Lock()
	defer c.mu.Unlock()
	h.prev, h.next = &c.open, c.open.next
	h.prev.next, h.next.prev = h, h
	c.numOpen++
}

// acquire returns the object of C, which then lives until release.
func (h *handle) acquire() (uintptr, error) {
	for {
		n := h.state.Load()
		if n&closing != 0 || h.ptr == 0 {
			kind := "object"
			if h.self != nil {
				kind = h.self.kind()
			}
			return 0, errors.Wrapf(ErrClosed, "pjrt: this %s cannot be used", kind)
		}
		if h.state.CompareAndSwap(n, n+1) {
			return h.ptr, nil
		}
	}
}

// release ends what acquire began, and frees the object if it was closed meanwhile.
func (h *handle) release() {
	if h.state.Add(-1) == closing {
		err := h.self.destroy()
		h.client.freed(h)
		if err != nil {
			h.client.mu.Lock()
			h.client.late = err
			h.client.mu.Unlock()
		}
	}
}

// Close frees the object once no call uses it any more. A second Close does nothing.
func (h *handle) Close() error {
	for {
		n := h.state.Load()
		switch {
		case n&closing != 0 || h.ptr == 0:
			return nil
		case !h.state.CompareAndSwap(n, n|closing):
		case n == 0:
			err := h.self.destroy()
			h.client.freed(h)
			return err
		default:
			return nil // the last call frees it
		}
	}
}
