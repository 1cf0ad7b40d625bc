// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/schedule"
)

// Fullest is the device that has least room for what it needs, in proportion to what it has.
type Fullest struct {
	Rank, Place, Position int
	Needs                 schedule.Bytes
	Has                   int64 // 0: that is not limited, or not known
}

// Over tells whether it needs more than it has.
func (f Fullest) Over() bool { return f.full() > 1 }

// full is what it needs, of what it has; 0 if that is not limited.
func (f Fullest) full() float64 {
	if f.Has == 0 {
		return 0
	}
	return float64(f.Needs.Total()) / float64(f.Has)
}

// String says what it needs and has.
func (f Fullest) String() string {
	return fmt.Sprintf("device %d needs %s of memory and has %s", f.Rank, humanize.Bytes(f.Needs.Total()), humanize.Bytes(f.Has))
}

// Fullest is the device that is, of those that run the program by its account. memory is what a rank has; 0: that is not limited, or not known.
func (r *Result) Fullest(a *schedule.Account, memory func(rank int) int64) (most Fullest) {
	first := true
	look := func(f Fullest) {
		f.Has = memory(f.Rank)
		if first || cmp.Or(cmp.Compare(f.full(), most.full()), cmp.Compare(f.Needs.Total(), most.Needs.Total())) > 0 {
			first, most = false, f
		}
	}
	if r.Schedule == nil {
		look(Fullest{Needs: a.Places[0].Peak})
		return most
	}
	for place, group := range r.Schedule.Groups {
		for position, device := range group {
			for _, ranks := range r.Schedule.Ranks {
				look(Fullest{Rank: ranks[device], Place: place, Position: position, Needs: a.Places[place].On(position)})
			}
		}
	}
	return most
}

// Memory is what a device may take by the configuration, or has by the description of the cluster; 0: that is not limited, or not known.
func (t Target) Memory(cfg *config.Config, rank int) int64 {
	return cmp.Or(cfg.Cluster.DeviceMemory, t.Hardware.MemoryOf(rank))
}
