// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"
)

// Description describes a cluster, which need not exist: see docs/profiles.md.
type Description struct {
	Workers []Workers `json:"workers"`
	// Profile is that of devices whose worker does not say. "": that of this machine, or else [Default].
	Profile string `json:"profile,omitempty"`
	// DeviceMemory is the memory of devices whose worker does not say, in place of the profile's: "32GiB".
	DeviceMemory Bytes `json:"device_memory,omitempty"`
	// Inside connects the devices of a host, and Between hosts, in place of what the profile says.
	Inside  *Link `json:"inside,omitempty"`
	Between *Link `json:"between,omitempty"`
}

// Workers are one or several workers that are alike.
type Workers struct {
	Host    string `json:"host,omitempty"`  // "": each has one of its own
	Count   int    `json:"count,omitempty"` // 0 is 1
	Devices int    `json:"devices"`
	Profile string `json:"profile,omitempty"`
	Memory  Bytes  `json:"memory,omitempty"` // of each device
	// Speeds of the devices relative to the profile: one for all, or one for each.
	Speeds Speeds `json:"speed,omitempty"`
	// Inside connects the devices of the host.
	Inside *Link `json:"inside,omitempty"`
}

// Bytes is a number of bytes; in files "32GiB".
type Bytes int64

// UnmarshalJSON implements json.Unmarshaler.
func (m *Bytes) UnmarshalJSON(b []byte) error { return (*bytesText)(m).UnmarshalJSON(b) }

// MarshalJSON implements json.Marshaler.
func (m Bytes) MarshalJSON() ([]byte, error) { return bytesText(m).MarshalJSON() }

// Speeds are numbers; in files one number, or a list.
type Speeds []float64

// UnmarshalJSON implements json.Unmarshaler.
func (s *Speeds) UnmarshalJSON(b []byte) error {
	var one float64
	if json.Unmarshal(b, &one) == nil {
		*s = Speeds{one}
		return nil
	}
	var list []float64
	if err := json.Unmarshal(b, &list); err != nil {
		return errors.Errorf("%s is no speed: write a number, or one for each device, such as [2, 1]", b)
	}
	*s = list
	return nil
}

// forms is what Describe expects, for errors.
const forms = "workers x devices of each, such as 8x8, or 8x8xV100-32 with a profile, or devices of each worker, such as 4+2"

// Describe reads the description of a cluster: "8x8" are 8 workers with 8 devices each, "8x8xV100-32" says which, "4+2" two workers with 4 and 2,
// "1x8xV100-32+1x8xP100-16" two of different kinds; anything else is a file, YAML or JSON.
func Describe(spec string) (*Description, error) {
	var d Description
	for term := range strings.SplitSeq(spec, "+") {
		w, ok := parseWorkers(term)
		if !ok {
			break
		}
		d.Workers = append(d.Workers, w)
	}
	if len(d.Workers) == 1+strings.Count(spec, "+") {
		return &d, d.check()
	}
	if strings.Trim(spec, "0123456789x+") == "" && spec != "" {
		return nil, errors.Errorf("expected %s, at least one of each", forms)
	}
	text, err := os.ReadFile(spec)
	if err != nil {
		return nil, errors.Errorf("expected %s, or a file: %v", forms, err)
	}
	if err := yaml.UnmarshalStrict(text, &d); err != nil {
		return nil, errors.Errorf("%v; docs/profiles.md describes such files", err)
	}
	return &d, d.check()
}

// parseWorkers reads "4", "8x8" or "8x8xV100-32".
func parseWorkers(term string) (w Workers, ok bool) {
	parts := strings.SplitN(term, "x", 3)
	if len(parts) == 1 {
		return Workers{Count: 1, Devices: number(parts[0])}, number(parts[0]) > 0
	}
	w = Workers{Count: number(parts[0]), Devices: number(parts[1])}
	if len(parts) == 3 {
		w.Profile = parts[2]
	}
	return w, w.Count > 0 && w.Devices > 0 && (len(parts) < 3 || w.Profile != "")
}

// number is a number of workers or devices; 0 if it is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1<<20 {
		return 0
	}
	return n
}

// mostDevices is how many a cluster may have.
const mostDevices = 1 << 20

// check finds what cannot be.
func (d *Description) check() error {
	hosts, total := 0, 0
	for i := range d.Workers {
		w := &d.Workers[i]
		if w.Devices < 1 || w.Count < 0 {
			return errors.Errorf("worker %d has no devices; write how many", i)
		}
		w.Count = max(w.Count, 1)
		if w.Host != "" {
			hosts++
		}
		if n := len(w.Speeds); n > 1 && n != w.Devices {
			return errors.Errorf("worker %d has %d devices and %d speeds; write one for each, or one for all", i, w.Devices, n)
		}
		for _, s := range w.Speeds {
			if s <= 0 || math.IsInf(s, 0) || math.IsNaN(s) {
				return errors.Errorf("worker %d: a speed of %g; write more than 0: 1 is what the profile says", i, s)
			}
		}
		if total += w.Count * w.Devices; total > mostDevices {
			return errors.Errorf("it has more than %d devices, the most that a plan is made for; use fewer", mostDevices)
		}
	}
	if len(d.Workers) == 0 || hosts > 0 && hosts != len(d.Workers) {
		return errors.Errorf("%d workers, %d hosts: describe at least one worker, and name the host of every one, or none", len(d.Workers), hosts)
	}
	return nil
}

// Each calls f for every worker, in order.
func (d *Description) Each(f func(w Workers)) {
	for _, w := range d.Workers {
		for range w.Count {
			f(w)
		}
	}
}

// Cluster looks up profiles and makes the cluster. A device whose profile is named has to have memory.
func (d *Description) Cluster() (*Cluster, error) {
	c := &Cluster{Inside: DefaultLink, Between: DefaultLink, Hosts: map[int]Link{}}
	known := map[string]*Profile{}
	hosts := map[string]int{}
	next, worker := 0, 0
	for i, w := range d.Workers {
		name := w.Profile
		if name == "" {
			name = d.Profile
		}
		found, ok := known[name]
		if !ok {
			var err error
			if found, err = profileOf(name); err != nil {
				return nil, err
			}
			known[name] = found
		}
		p := *found
		if name == "" {
			p.Memory = 0 // devices need not exist, here least of all
		}
		if p.Cores > 0 {
			p.Memory /= int64(d.onHost(w)) // they share it, too
		}
		for _, m := range []Bytes{d.DeviceMemory, w.Memory} {
			if m > 0 {
				p.Memory = int64(m)
			}
		}
		if p.Memory == 0 && name != "" {
			return nil, errors.Errorf("epl: worker %d: profile %s does not say how much memory a device has; write memory, such as 16GiB", i, name)
		}
		if i == 0 {
			if p.Within != nil && d.Inside == nil {
				c.Within = *p.Within
			}
			c.Inside, c.Between = firstLink(d.Inside, p.Inside), firstLink(d.Between, p.Between)
		} else if between := firstLink(d.Between, p.Between); between.Bandwidth < c.Between.Bandwidth {
			c.Between = between // the slower end is what counts
		}
		for range w.Count {
			host, ok := hosts[w.Host]
			if !ok || w.Host == "" {
				host = next
				hosts[w.Host] = host
				next++
			}
			if inside := firstLink(w.Inside, d.Inside, p.Inside); inside != c.Inside {
				c.Hosts[host] = inside
			}
			for n := range w.Devices {
				speed := 1.0
				if len(w.Speeds) > 0 {
					speed = w.Speeds[n%len(w.Speeds)]
				}
				c.Devices = append(c.Devices, Device{Profile: &p, Host: host, Worker: worker, Speed: speed})
			}
			worker++
		}
	}
	return c, nil
}

// onHost are the devices of a worker's host.
func (d *Description) onHost(w Workers) (n int) {
	if w.Host == "" {
		return w.Devices
	}
	for _, x := range d.Workers {
		if x.Host == w.Host {
			n += x.Count * x.Devices
		}
	}
	return n
}

// firstLink is the first that is known.
func firstLink(links ...*Link) Link {
	for _, l := range links {
		if l != nil {
			return *l
		}
	}
	return DefaultLink
}

// profileOf finds a profile; "" is that of this machine, if it has one.
func profileOf(name string) (*Profile, error) {
	if name != "" {
		return Find(name)
	}
	if slices.Contains(Names(), This) {
		return Find(This)
	}
	return Default, nil
}
