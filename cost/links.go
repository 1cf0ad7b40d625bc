// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute/support/humanize"
)

// Links are what was measured of links when a job started (cluster.measure), by what they connect; nil: there are no two of that kind.
type Links struct {
	Within  *Link `json:"within,omitempty"`  // devices of one worker
	Inside  *Link `json:"inside,omitempty"`  // workers of one host
	Between *Link `json:"between,omitempty"` // hosts
	// Not says why nothing was measured.
	Not string `json:"not,omitempty"`
}

// Any tells whether something was measured.
func (l *Links) Any() bool {
	return l != nil && (l.Within != nil || l.Inside != nil || l.Between != nil)
}

// String is a line for people.
func (l *Links) String() string {
	var all []string
	for _, x := range []struct {
		link *Link
		what string
	}{{l.Within, "devices of a worker"}, {l.Inside, "workers of a host"}, {l.Between, "hosts"}} {
		if x.link != nil {
			all = append(all, fmt.Sprintf("%s and %.2g GB/s between %s", humanize.Duration(x.link.Latency), x.link.Bandwidth/1e9, x.what))
		}
	}
	if all == nil {
		return "cluster.measure measured no links: " + l.Not
	}
	return "links were measured at the start (cluster.measure): " + strings.Join(all, ", ")
}

// On gives a cluster those links in place of what was known of them.
func (l *Links) On(c *Cluster) {
	for of, link := range map[*Link]*Link{&c.Within: l.Within, &c.Inside: l.Inside, &c.Between: l.Between} {
		if link != nil {
			*of = *link
		}
	}
	if l.Inside != nil {
		c.Hosts = nil
	}
}
