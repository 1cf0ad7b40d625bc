// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/schedule"
)

// writeMemory prints the account of a training step. Places that need the same stand in one row; what is hardly anything
// has no column.
func (r *report) writeMemory(w *strings.Builder) {
	if r.Account == nil || r.Kind != "training step" {
		return
	}
	uses := slices.DeleteFunc(schedule.Uses(), func(u schedule.Use) bool {
		return !slices.ContainsFunc(r.Account.Places, func(x schedule.PlaceAccount) bool { return x.Peak[u]*100 > x.Peak.Total() })
	})
	t := table{head: []string{"devices of a replica", ">bytes"}}
	for _, u := range uses {
		t.head = append(t.head, ">"+u.String())
	}
	t.head = append(t.head, "when")
	for _, places := range alike(r.Account) {
		x := r.Account.Places[places[0]]
		row := func(devices string, b schedule.Bytes) {
			cells := []any{devices, b.Total()}
			for _, u := range uses {
				cells = append(cells, b[u])
			}
			t.row(append(cells, x.Text)...)
		}
		if x.Devices == nil {
			row(placesText(r.Schedule.Devices(places...)), x.Peak)
			continue
		}
		for position, device := range r.Schedule.Groups[places[0]] {
			row(placesText([]int{device}), x.Devices[position])
		}
	}
	t.section(w, "memory of a device, predicted: what lives at the peak")
	if r.Measured == nil && r.Hardware.Processors() {
		sentences(w, "counted op by op, in the order of the program: XLA fuses ops, and says what it needs when it compiles")
	}
	r.writeMeasured(w)
}

// writeMeasured compares the account with what devices plan for the program now that it is compiled.
func (r *report) writeMeasured(w *strings.Builder) {
	if r.Measured == nil {
		return
	}
	t := table{head: []string{"devices of a replica", ">predicted", ">compiled", ">difference", "when"}}
	for _, places := range alike(r.Measured) {
		x, predicted := r.Measured.Places[places[0]], r.Account.Places[places[0]].Peak.Total()
		n := x.Peak.Total()
		t.row(placesText(r.Schedule.Devices(places...)), predicted, n, fmt.Sprintf("%+.1f %%", 100*float64(n-predicted)/float64(max(predicted, 1))), x.Text)
	}
	t.section(w, "memory of a device, as its modules were compiled")
}

// Counted is the account that is nearest to what really happens.
func (c *Program) Counted() *schedule.Account {
	if c.Measured != nil {
		return c.Measured
	}
	return c.Account
}

// alike are the places that need the same, in order. One whose devices need different amounts is like none.
func alike(a *schedule.Account) [][]int {
	places := make([]int, len(a.Places))
	for i := range places {
		places[i] = i
	}
	type needs struct {
		schedule.Bytes
		divided int
	}
	return grouped(places, func(place int) needs {
		if x := a.Places[place]; x.Devices != nil {
			return needs{x.Peak, 1 + place}
		}
		return needs{a.Places[place].Peak, 0}
	})
}

// Needs says what a device needs, and what for. of says by what it is known what it has, as far as it is.
func (c *Program) Needs(f plan.Fullest, of string) string {
	by := "by EPL's account"
	if c.Measured != nil {
		by = "as its modules were compiled"
	}
	var w strings.Builder
	fmt.Fprintf(&w, "device %d needs %s", f.Rank, bytesText(f.Needs.Total()))
	if f.Has > 0 {
		fmt.Fprintf(&w, " and has %s (%s)", bytesText(f.Has), of)
		if c.Measured != nil && f.Over() {
			fmt.Fprintf(&w, ": %s are missing", bytesText(f.Needs.Total()-f.Has))
		}
	}
	fmt.Fprintf(&w, ", %s, at %s:\n", by, c.Counted().Places[f.Place].Text)
	t := table{head: []string{"for", ">bytes"}}
	uses := schedule.Uses()
	slices.SortStableFunc(uses, func(a, b schedule.Use) int { return cmp.Compare(f.Needs[b], f.Needs[a]) })
	for _, u := range uses {
		if f.Needs[u] > 0 {
			t.row(u, f.Needs[u])
		}
	}
	t.write(&w, "  ")
	return strings.TrimSuffix(w.String(), "\n")
}

// Advice says what would help a program that needs too much memory.
func Advice(all []plan.Suggestion) string {
	var w strings.Builder
	if len(all) > 0 {
		w.WriteString("what would help, and the most that a device would need then:\n")
		t := table{head: []string{"setting", ">bytes", ""}}
		for _, s := range all {
			fits := ""
			if s.Fits {
				fits = "fits"
			}
			t.row(strings.Join(s.Settings, " "), s.Peak, fits)
		}
		t.write(&w, "  ")
		w.WriteString("or ")
	}
	w.WriteString("use a smaller micro-batch, or more devices: as stages of a pipeline, or by epl.Split")
	return w.String()
}

// Offloaded says what is kept on the host.
func Offloaded(s *schedule.Program) string {
	n, bytes := 0, int64(0)
	for _, x := range s.Variables {
		if x.Host {
			n++
			bytes += x.Param.Shape.ByteSize()
		}
	}
	return fmt.Sprintf("offload.level=v0: %s of %s are in the memory of the host, and come to the devices a segment before they are used",
		words.Count(n, "variable"), bytesText(bytes))
}
