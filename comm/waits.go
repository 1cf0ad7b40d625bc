// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// questionState asks a worker what its ranks wait for.
const questionState = "state"

// toldWait is a call in which a rank waits, as its worker tells others.
type toldWait struct {
	Rank int
	Header
	For  []int // the ranks that have not come; empty: not known yet
	Held bool  // it keeps the rank from going on: it is not a call that was started, and that nobody waits for yet
}

// toldElsewhere is what a worker waits for outside the world.
type toldElsewhere struct {
	What    string
	Workers []int
}

// toldState is what a worker says of itself to one that looks for who holds up the job.
type toldState struct {
	Waits     []toldWait
	Elsewhere *toldElsewhere `json:",omitempty"`
	Tables    map[int]string // the last calls of its ranks
}

// state describes what the ranks of this worker wait for.
func (w *World) state() (s toldState) {
	const ranks, calls = 8, 5
	s.Tables = map[int]string{}
	entries := map[int][]Entry{}
	for i, r := range w.local {
		entries[r] = w.ranks[r].recorder.Entries()
		if i < ranks {
			s.Tables[r] = w.ranks[r].recorder.table(calls)
		}
	}
	for _, r := range w.local {
		queued := map[string]bool{} // communicators in which the rank waits behind other calls of its own
		for _, e := range entries[r] {
			if e.State == Queued && e.waited {
				queued[e.Group] = true
			}
		}
		for _, e := range entries[r] {
			if e.State == Started {
				s.Waits = append(s.Waits, toldWait{r, e.Header, w.missing(e, entries), e.waited || queued[e.Group]})
			}
		}
	}
	if w.base.Mesh != nil {
		if what, workers := w.base.Mesh.Waiting(); what != "" {
			s.Elsewhere = &toldElsewhere{what, workers}
		}
	}
	return s
}

// missing returns the ranks that a call waits for: what was last seen, or else what follows from the calls of this worker's
// ranks.
func (w *World) missing(e Entry, entries map[int][]Entry) (ranks []int) {
	if e.Op.PointToPoint() {
		return []int{e.Peer}
	}
	var group []int
	if m := w.meetingNamed(e.Group); m != nil {
		group = m.Team.Ranks
	}
	for _, r := range w.local {
		same := slices.IndexFunc(entries[r], func(o Entry) bool {
			return o.Group == e.Group && !o.Op.PointToPoint() && o.Seq >= e.Seq && o.State != Queued
		})
		switch {
		case same < 0 && slices.Contains(group, r):
			ranks = append(ranks, r)
		case same >= 0 && entries[r][same].Seq == e.Seq && entries[r][same].missing != nil:
			return entries[r][same].missing
		}
	}
	return ranks
}

// text is a state as it travels.
func (s toldState) text() string {
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// answer is what this worker says to others.
func (w *World) answer(question string) string {
	if name, ok := strings.CutPrefix(question, transport.QuestionCall); ok {
		m := w.meetingNamed(name)
		if m == nil {
			return "nothing: it has no such communicator"
		}
		return m.Now()
	}
	if question == questionState {
		return w.state().text()
	}
	return fmt.Sprintf("nothing: the question %q is not understood", question)
}
