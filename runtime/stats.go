package runtime

import (
	"sync"

	"github.com/easyparallel/epl/schedule"
)

// Stats counts what the devices do.
type Stats struct {
	mu      sync.Mutex
	devices []DeviceStats
}

// DeviceStats is what one device did.
type DeviceStats struct {
	Runs      int              // programs, or steps of one
	PeakBytes int64            // most bytes that lived on it at once
	Peak      map[string]int64 // the same by what they were for: "weights", "activations", …
	Most      map[string]int64 // the most bytes of each, whenever that was
	Sent      map[string]int64 // bytes by "all-reduce", "all-gather", …
	// Allocated is the most bytes that the device had for tensors, by its own count; 0: it does not tell.
	Allocated int64
}

// NewStats counts for n devices.
func NewStats(n int) *Stats {
	return &Stats{devices: make([]DeviceStats, n)}
}

// ran notes that a device ran a program, or took part in a step, and what it sent meanwhile.
func (s *Stats) ran(device int, b schedule.Books, sent map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &s.devices[device]
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

// Take returns the counts since it was last called.
func (s *Stats) Take() []DeviceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.devices
	s.devices = make([]DeviceStats, len(out))
	for i := range out {
		if out[i].Sent == nil {
			out[i].Sent = map[string]int64{}
		}
	}
	return out
}
