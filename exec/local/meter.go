// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"github.com/gomlx/compute/support/humanize"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/schedule"
)

// meter counts the bytes that live on a device, by what they are for.
type meter struct {
	device int
	limit  int64 // 0: none
	books  schedule.Books
}

// add puts bytes on the books, or takes them off if they are negative.
func (m *meter) add(use schedule.Use, bytes int64) error {
	m.books.Add(use, bytes)
	return m.check(m.books.Live)
}

// addAll puts bytes of several uses on the books, or takes them off if sign is -1.
func (m *meter) addAll(bytes schedule.Bytes, sign int64) error {
	for use, n := range bytes {
		if err := m.add(schedule.Use(use), sign*n); err != nil {
			return err
		}
	}
	return nil
}

// during notes what is needed for a moment.
func (m *meter) during(n schedule.Need) error {
	m.books.During(n)
	return m.check(m.books.Live.Plus(n.Peak))
}

// check is the second net: a plan that needs more than the device has is refused before its first step.
func (m *meter) check(now schedule.Bytes) error {
	if m.limit == 0 || now.Total() <= m.limit {
		return nil
	}
	return errors.Errorf("epl: device %d needs %s and has %s (cluster.device_memory): %s; "+
		"use a smaller micro-batch, or more devices", m.device, humanize.Bytes(now.Total()), humanize.Bytes(m.limit), now)
}
