// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"slices"
	"time"

	"github.com/easyparallel/epl/ir"
)

// Link is what connects devices.
type Link struct {
	Latency   time.Duration
	Bandwidth float64 // bytes per second, in each direction
	// Shared: the devices of a host have it together: a network card, a memory bus. Else each has its own.
	Shared bool
}

// DefaultLink connects the virtual devices of a machine, roughly. It goes with [Default].
var DefaultLink = Link{Latency: 10 * time.Microsecond, Bandwidth: 4e9}

// Time is how long so many bytes take over the link; nothing takes no time.
func (l Link) Time(bytes int64) time.Duration {
	if bytes == 0 {
		return 0
	}
	return l.Latency + seconds(float64(bytes)/l.Bandwidth)
}

// Cluster is the devices of a job, by rank, and what connects them.
type Cluster struct {
	Devices []Device
	Within  Link // between devices of one worker; without bandwidth: as Inside
	Inside  Link // between devices of one host
	Between Link // between hosts
	// Hosts are the links inside of hosts that have another than Inside.
	Hosts map[int]Link
}

// Device is one of a cluster.
type Device struct {
	Profile *Profile
	Host    int
	Worker  int     // the process that has it
	Speed   float64 // relative to the profile; 0 is 1
}

// Uniform is a cluster of equal hosts with equal devices.
func Uniform(hosts, devices int, p *Profile, inside, between Link) *Cluster {
	c := &Cluster{Inside: inside, Between: between}
	for host := range hosts {
		for range devices {
			c.Devices = append(c.Devices, Device{Profile: p, Host: host, Worker: host, Speed: 1})
		}
	}
	return c
}

// Known tells whether it is known what the devices can do. It may be known of others which are faster: of those only the ratios mean something.
func (c *Cluster) Known() bool {
	return c != nil && !slices.ContainsFunc(c.Devices, func(d Device) bool { return d.Profile.Name == Default.Name })
}

// Processors tells whether devices are known to be processors of their own, such as GPUs, and have no part of a host's cores.
func (c *Cluster) Processors() bool {
	return c.Known() && slices.ContainsFunc(c.Devices, func(d Device) bool { return d.Profile.Cores == 0 })
}

// Unequal tells whether some devices are faster than others.
func (c *Cluster) Unequal() bool {
	first := c.Devices[0]
	return slices.ContainsFunc(c.Devices, func(d Device) bool { return d.Profile.Name != first.Profile.Name || d.Speed != first.Speed })
}

// OnHost is how many devices a host has.
func (c *Cluster) OnHost(host int) (n int) {
	for _, d := range c.Devices {
		if d.Host == host {
			n++
		}
	}
	return n
}

// Link is what connects two devices, given by their ranks.
func (c *Cluster) Link(a, b int) Link {
	switch x, y := c.Devices[a], c.Devices[b]; {
	case x.Host != y.Host:
		return c.Between
	case x.Worker == y.Worker && c.Within.Bandwidth > 0:
		return c.Within
	default:
		return c.inside(x.Host)
	}
}

// Ops is how long the device takes for a segment: see [Profile.Ops].
func (d Device) Ops(s *ir.Segment) time.Duration {
	t := d.Profile.Ops(s)
	if d.Speed > 0 && d.Speed != 1 {
		t = time.Duration(float64(t) / d.Speed)
	}
	return t
}

// inside is the link inside of a host.
func (c *Cluster) inside(host int) Link {
	if l, ok := c.Hosts[host]; ok {
		return l
	}
	return c.Inside
}

// MemoryOf is that of a device; 0 if it is not limited, or not known.
func (c *Cluster) MemoryOf(rank int) int64 {
	if c == nil || rank >= len(c.Devices) {
		return 0
	}
	return c.Devices[rank].Profile.Memory
}

// Memory is that of the device that has least; 0 if it is not limited, or not known of one.
func (c *Cluster) Memory() int64 {
	least := c.Devices[0].Profile.Memory
	for _, d := range c.Devices {
		least = min(least, d.Profile.Memory)
	}
	return least
}
