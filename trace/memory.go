// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Peak is what lived on a device when most did in a step, and where it comes from.
type Peak struct {
	Device int    `json:"device"`
	Bytes  int64  `json:"bytes"`
	Held   []Held `json:"held"`
}

// Held is memory of one kind: what it is for, the op that computes it or the variable that it is, and where in the model that is.
type Held struct {
	Use     string `json:"use"`
	What    string `json:"what,omitempty"` // "": buffers that are no value's
	Line    string `json:"line,omitempty"`
	Scope   string `json:"scope,omitempty"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// SetPeak notes the peak of a device, in place of a smaller one.
func (s *Step) SetPeak(p Peak) {
	if s == nil {
		return
	}
	slices.SortFunc(p.Held, func(a, b Held) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Use, b.Use), cmp.Compare(a.What, b.What), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Scope, b.Scope))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.peaks, func(x Peak) bool { return x.Device == p.Device }); i >= 0 {
		s.peaks[i] = p
		return
	}
	s.peaks = append(s.peaks, p)
}

// AddSites notes where what lives on a device from a time on comes from.
func (s *Step) AddSites(at time.Time, p Peak) {
	if s == nil {
		return
	}
	m := Memory{Device: p.Device, At: at, Bytes: map[string]int64{}}
	rest := p.Bytes
	for _, h := range p.Held {
		m.Bytes[h.site()] += h.Bytes
		rest -= h.Bytes
	}
	if rest > 0 {
		m.Bytes[noSite] += rest
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sites = append(s.sites, m)
}

// noSite is memory that no value has.
const noSite = "gaps, and copies that are sent"

// Sites returns where what lived on the devices comes from, bytes by place in the model, by time. There are fewer samples than of [Step.Memory].
func (s *Step) Sites() []Memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	return byTime(s.sites)
}

// byTime are samples in the order of time.
func byTime(all []Memory) []Memory {
	return slices.SortedStableFunc(slices.Values(all), func(a, b Memory) int { return a.At.Compare(b.At) })
}

// Peaks are those of the devices, by device.
func (s *Step) Peaks() []Peak {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(slices.Values(s.peaks), func(a, b Peak) int { return cmp.Compare(a.Device, b.Device) })
}

// site is where the memory was allocated: the line, or the scope of a variable.
func (h Held) site() string {
	switch {
	case h.Line != "":
		return h.Line
	case strings.HasPrefix(h.What, "/"):
		return cmp.Or(h.Scope, h.What)
	}
	return cmp.Or(h.What, "buffers of no value")
}

// table lists where the memory of a device comes from when most of it is taken.
func (p Peak) table(b *strings.Builder) {
	type row struct{ site, use string }
	sums := map[row]*Held{}
	var order []row
	known := int64(0)
	for _, h := range p.Held {
		k := row{h.site(), h.Use}
		if sums[k] == nil {
			sums[k] = &Held{}
			order = append(order, k)
		}
		sums[k].Bytes += h.Bytes
		sums[k].Tensors += h.Tensors
		known += h.Bytes
	}
	slices.SortStableFunc(order, func(a, b row) int { return cmp.Compare(sums[b].Bytes, sums[a].Bytes) })
	rows := [][]string{{fmt.Sprintf("memory at the peak of device %d", p.Device), "for", "tensors", "bytes", "share"}}
	line := func(site, use string, tensors int, bytes int64) {
		count := "-"
		if tensors > 0 {
			count = strconv.Itoa(tensors)
		}
		rows = append(rows, []string{plain(site), plain(use), count, bytesText(bytes), percent(float64(bytes) / float64(max(p.Bytes, 1)))})
	}
	for i, k := range order {
		if i == mostOps-1 && len(order) > mostOps {
			var rest Held
			for _, k := range order[i:] {
				rest.Bytes, rest.Tensors = rest.Bytes+sums[k].Bytes, rest.Tensors+sums[k].Tensors
			}
			line(fmt.Sprintf("%d others", len(order)-i), "", rest.Tensors, rest.Bytes)
			break
		}
		line(k.site, k.use, sums[k].Tensors, sums[k].Bytes)
	}
	if rest := p.Bytes - known; rest > 0 {
		line(noSite, "", 0, rest)
	}
	line("all", "", 0, p.Bytes)
	align(b, rows)
}

// highest is the peak of the device that needs most; ok tells whether there is one.
func highest(peaks []Peak) (most Peak, ok bool) {
	for _, p := range peaks {
		if p.Bytes > most.Bytes {
			most, ok = p, true
		}
	}
	return most, ok
}
