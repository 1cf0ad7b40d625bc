// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// Group is a list of ranks that communicate with each other. A rank's index in the list is its position: counts, roots
// and peers are given by position, and reductions go in that order.
type Group struct {
	world         *World
	ranks         []int
	name          string
	communicators map[endKey]*Communicator // guarded by world.mu
}

// endKey names one rank's end of one communicator of a group.
type endKey struct{ channel, pos int }

// Group returns the group of some ranks, in the given order. The same list gives the same group.
func (w *World) Group(ranks []int) (*Group, error) {
	name := groupName(ranks)
	if len(ranks) == 0 {
		return nil, errors.Errorf("epl: a group of no ranks is impossible; name at least one rank")
	}
	for i, r := range ranks {
		if r < 0 || r >= w.Size() {
			return nil, errors.Errorf("epl: group %s names rank %d, but the world has %d ranks; use 0 to %d", name, r, w.Size(), w.Size()-1)
		}
		if slices.Contains(ranks[:i], r) {
			return nil, errors.Errorf("epl: group %s names rank %d twice; name each rank once", name, r)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g, ok := w.groups[name]
	if !ok {
		g = &Group{world: w, ranks: slices.Clone(ranks), name: name, communicators: map[endKey]*Communicator{}}
		w.groups[name] = g
	}
	return g, nil
}

// Size returns the number of ranks.
func (g *Group) Size() int { return len(g.ranks) }

// Ranks returns the ranks by position.
func (g *Group) Ranks() []int { return slices.Clone(g.ranks) }

// Position returns the index of a rank in the group, or -1.
func (g *Group) Position(rank int) int { return slices.Index(g.ranks, rank) }

// String lists the ranks: "[0 2]", "[0-3]".
func (g *Group) String() string { return g.name }

// Communicator returns the end of a communicator that belongs to a rank. Channels (0, 1, …) are communicators of the
// same ranks that know nothing of each other: calls on different channels run at the same time. The same arguments give
// the same communicator.
func (g *Group) Communicator(rank, channel int) (*Communicator, error) {
	pos := g.Position(rank)
	if pos < 0 {
		return nil, errors.Errorf("epl: rank %d is not in group %s; ask for one of its own ranks", rank, g.name)
	}
	if !g.world.base.IsLocal(rank) {
		return nil, errors.Errorf("epl: rank %d lives in worker %d, not in worker %d; a worker has the ends of its own ranks",
			rank, g.world.base.WorkerOf[rank], g.world.base.Layout.Worker)
	}
	if channel < 0 {
		return nil, errors.Errorf("epl: channel %d of group %s is impossible; count from 0", channel, g.name)
	}
	w := g.world
	w.mu.Lock()
	defer w.mu.Unlock()
	key := endKey{channel, pos}
	c, ok := g.communicators[key]
	if !ok {
		c = newCommunicator(g, channel, pos)
		if w.broken != nil {
			c.end.meeting.Fail(w.broken)
		}
		g.communicators[key] = c
	}
	return c, nil
}

// groupName writes ranks, with runs shortened: "[0-3 6]".
func groupName(ranks []int) string {
	var parts []string
	for i := 0; i < len(ranks); {
		j := i + 1
		for j < len(ranks) && ranks[j] == ranks[j-1]+1 {
			j++
		}
		if j-i < 3 {
			j = i + 1
			parts = append(parts, fmt.Sprint(ranks[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", ranks[i], ranks[j-1]))
		}
		i = j
	}
	return "[" + strings.Join(parts, " ") + "]"
}
