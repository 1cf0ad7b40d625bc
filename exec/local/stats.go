// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"sync"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/schedule"
)

// stats counts what the devices do, for several readers, of which each has counts since it looked last.
type stats struct {
	mu      sync.Mutex
	readers [][]exec.DeviceStats
}

// newStats counts for n devices, and one reader.
func newStats(n int) *stats {
	return &stats{readers: [][]exec.DeviceStats{make([]exec.DeviceStats, n)}}
}

// add makes another reader.
func (s *stats) add() (reader int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers = append(s.readers, make([]exec.DeviceStats, len(s.readers[0])))
	return len(s.readers) - 1
}

// ran notes that a device ran a program, or took part in a step, and what it sent meanwhile.
func (s *stats) ran(device int, b schedule.Books, sent map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, devices := range s.readers {
		count(&devices[device], b, sent)
	}
}

func count(d *exec.DeviceStats, b schedule.Books, sent map[string]int64) {
	d.Runs++
	if peak := b.Peak.Total(); peak > d.PeakBytes || d.Peak == nil {
		d.PeakBytes, d.Peak = peak, b.Peak.Map()
	}
	for name, bytes := range b.Most.Map() {
		if d.Most == nil {
			d.Most = map[string]int64{}
		}
		d.Most[name] = max(d.Most[name], bytes)
	}
	for name, bytes := range sent {
		if d.Sent == nil {
			d.Sent = map[string]int64{}
		}
		d.Sent[name] += bytes
	}
}

// take returns the counts since a reader last called it.
func (s *stats) take(reader int) []exec.DeviceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.readers[reader]
	s.readers[reader] = make([]exec.DeviceStats, len(out))
	for i := range out {
		if out[i].Sent == nil {
			out[i].Sent = map[string]int64{}
		}
	}
	return out
}
