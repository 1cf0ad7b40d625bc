package local

import (
	"sync"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/schedule"
)

// stats counts what the devices do.
type stats struct {
	mu      sync.Mutex
	devices []exec.DeviceStats
}

// newStats counts for n devices.
func newStats(n int) *stats {
	return &stats{devices: make([]exec.DeviceStats, n)}
}

// ran notes that a device ran a program, or took part in a step, and what it sent meanwhile.
func (s *stats) ran(device int, b schedule.Books, sent map[string]int64) {
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

// take returns the counts since it was last called.
func (s *stats) take() []exec.DeviceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.devices
	s.devices = make([]exec.DeviceStats, len(out))
	for i := range out {
		if out[i].Sent == nil {
			out[i].Sent = map[string]int64{}
		}
	}
	return out
}
