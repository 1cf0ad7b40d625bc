// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/internal/words"
)

// writeEngine prints what the engine of the devices makes of the program: steps by kind, and what it leaves to another backend.
func (r *report) writeEngine(w *strings.Builder) {
	if len(r.Listings) == 0 {
		return
	}
	var all emit.Listing
	for _, l := range r.Listings {
		all.Arena = max(all.Arena, l.Arena)
		all.Over, all.Steps = append(all.Over, l.Over...), append(all.Steps, l.Steps...)
	}
	w.WriteString("\n  what devices run: each segment once\n")
	sentences(w, fmt.Sprintf("%s; %s for intermediate tensors; %d of %s in the memory of an input",
		words.Count(len(r.Listings), "segment"), bytesText(all.Arena), all.InPlace(), words.Count(len(all.Over), "output")))
	t := table{head: []string{"kind", ">steps", ">ops", ">GFLOP", ">reads", ">writes", ">copies"}}
	for _, kind := range emit.Kinds {
		if steps, sum := all.Sum(kind); steps > 0 {
			t.row(kind, steps, sum.Ops, orDash(sum.Flops > 0, fmt.Sprintf("%.4g", float64(sum.Flops)/1e9)), sum.Read, sum.Written,
				orDash(sum.Copied > 0, bytesText(sum.Copied)))
		}
	}
	t.write(w, "    ")
	// What another backend runs, and why.
	all.Steps = slices.DeleteFunc(all.Steps, func(s emit.Step) bool { return s.Kind != emit.Fallback })
	copied := func(same []emit.Step) int64 { _, sum := (&emit.Listing{Steps: same}).Sum(""); return sum.Copied }
	rows := grouped(all.Steps, func(s emit.Step) [2]string { return [2]string{s.What, s.Why} })
	slices.SortStableFunc(rows, func(a, b []emit.Step) int { return cmp.Compare(copied(b), copied(a)) })
	t = table{head: []string{"op", ">times", ">copies", "why"}}
	for _, same := range rows {
		t.row(same[0].What, len(same), copied(same), same[0].Why)
	}
	t.section(w, "fallbacks: what GoMLX's backend runs")
}
