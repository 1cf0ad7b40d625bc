// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/gomlx/compute/dtypes"
)

// State is how far a call has come.
type State uint8

// The states of a call.
const (
	Queued  State = iota // behind others
	Started              // it waits for the other ranks, or moves data
	Done
	Failed
)

// String returns the name that reports use.
func (s State) String() string { return [...]string{"queued", "started", "done", "failed"}[s] }

// over tells whether nothing more will happen to the call.
func (s State) over() bool { return s >= Done }

// Entry is one call in a flight recorder. Times count from the making of the world; those yet to come are 0.
type Entry struct {
	Header
	State                  State
	Queued, Started, Ended time.Duration
	number                 uint64 // counts the calls of the rank, from 1
	waited                 bool   // the rank does not go on before it is over
	missing                []int  // the ranks that had not come when last seen; nil: not looked yet
}

// FlightRecorder remembers the last calls of a rank. Its size is fixed; calls that are not over are kept before those
// that are. It may be read at any time, from any goroutine.
type FlightRecorder struct {
	rank int
	now  func() time.Duration

	mu      sync.Mutex
	entries []Entry
	next    int    // where to look first for room
	calls   uint64 // so far
}

// ticket finds an entry again, unless it was overwritten.
type ticket struct {
	slot   int
	number uint64
}

// add writes down a call.
func (f *FlightRecorder) add(h *Header, state State, now time.Duration) ticket {
	f.mu.Lock()
	defer f.mu.Unlock()
	slot := f.room()
	f.next = (slot + 1) % len(f.entries)
	f.calls++
	e := &f.entries[slot]
	*e = Entry{Header: *h, State: state, Queued: now, number: f.calls}
	if state == Started {
		e.Started, e.waited = now, true
	}
	return ticket{slot, f.calls}
}

// room returns where the next call goes. What hangs is what a reader will look for, so it is overwritten last.
func (f *FlightRecorder) room() int {
	oldest := 0
	for i := range f.entries {
		slot := (f.next + i) % len(f.entries)
		if e := &f.entries[slot]; e.number == 0 || e.State.over() {
			return slot
		} else if e.number < f.entries[oldest].number {
			oldest = slot
		}
	}
	return oldest
}

// set notes that a call has come further.
func (f *FlightRecorder) set(t ticket, state State, now time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := &f.entries[t.slot]
	if e.number != t.number {
		return
	}
	e.State = state
	if state == Started {
		e.Started = now
	} else {
		e.Ended = now
	}
}

// awaited notes that the rank does not go on before a call is over.
func (f *FlightRecorder) awaited(t ticket) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := &f.entries[t.slot]; e.number == t.number {
		e.waited = true
	}
}

// waits notes which ranks have not come to a call.
func (f *FlightRecorder) waits(t ticket, missing []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := &f.entries[t.slot]; e.number == t.number && !slices.Equal(e.missing, missing) {
		e.missing = slices.Clone(missing)
	}
}

// Entries returns what is remembered, oldest first.
func (f *FlightRecorder) Entries() []Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last(len(f.entries))
}

// last returns up to n entries, oldest first. Those that are not over go last. The lock is held.
func (f *FlightRecorder) last(n int) []Entry {
	es := slices.DeleteFunc(slices.Clone(f.entries), func(e Entry) bool { return e.number == 0 })
	slices.SortFunc(es, func(a, b Entry) int { return cmp.Compare(a.number, b.number) })
	for len(es) > n {
		drop := max(0, slices.IndexFunc(es, func(e Entry) bool { return e.State.over() }))
		es = slices.Delete(es, drop, drop+1)
	}
	return es
}

// String writes what is remembered as a table.
func (f *FlightRecorder) String() string { return f.table(len(f.entries)) }

// table writes the last n entries.
func (f *FlightRecorder) table(n int) string {
	f.mu.Lock()
	es, calls := f.last(n), f.calls
	f.mu.Unlock()
	var buf bytes.Buffer
	if len(es) == 0 {
		fmt.Fprintf(&buf, "rank %d: no calls\n", f.rank)
		return buf.String()
	}
	fmt.Fprintf(&buf, "rank %d: %d of %d calls, at %s\n", f.rank, len(es), calls, seconds(f.now()))
	w := tabwriter.NewWriter(&buf, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  call\tgroup\tprogram\tdtype\tbytes\tstate\tqueued\tstarted\tended")
	for _, e := range es {
		dtype := "-"
		if e.DType != dtypes.InvalidDType {
			dtype = e.DType.String()
		}
		what := e.Verb()
		if e.Op.Reduces() {
			what += " " + e.ReductionName()
		}
		fmt.Fprintf(w, "  %s #%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", what, e.Seq, e.Group, orDash(e.Program),
			dtype, e.Bytes, e.State, seconds(e.Queued), when(e.Started, e.State >= Started), when(e.Ended, e.State.over()))
	}
	w.Flush()
	return buf.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.6fs", d.Seconds()) }

func when(d time.Duration, happened bool) string {
	if !happened {
		return "-"
	}
	return seconds(d)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
