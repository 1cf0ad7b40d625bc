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
	arena, outputs, inPlace := int64(0), 0, 0
	for _, l := range r.Listings {
		arena = max(arena, l.Arena)
		outputs += len(l.Over)
		inPlace += l.InPlace()
	}
	w.WriteString("\n  what devices run: each segment once\n")
	sentences(w, fmt.Sprintf("%s; %s for intermediate tensors; %d of %s in the memory of an input",
		words.Count(len(r.Listings), "segment"), bytesText(arena), inPlace, words.Count(outputs, "output")))
	t := table{head: []string{"kind", ">steps", ">ops", ">GFLOP", ">reads", ">writes", ">copies"}}
	for _, kind := range emit.Kinds {
		steps, sum := 0, emit.Step{}
		for _, l := range r.Listings {
			n, s := l.Sum(kind)
			steps += n
			sum.Ops += s.Ops
			sum.Flops += s.Flops
			sum.Read += s.Read
			sum.Written += s.Written
			sum.Copied += s.Copied
		}
		if steps == 0 {
			continue
		}
		t.row(kind, steps, sum.Ops, orDash(sum.Flops > 0, fmt.Sprintf("%.4g", float64(sum.Flops)/1e9)), sum.Read, sum.Written,
			orDash(sum.Copied > 0, bytesText(sum.Copied)))
	}
	t.write(w, "    ")
	r.writeFallbacks(w)
}

// writeFallbacks prints what another backend runs, and why.
func (r *report) writeFallbacks(w *strings.Builder) {
	var all []emit.Step
	for _, l := range r.Listings {
		for _, s := range l.Steps {
			if s.Kind == emit.Fallback {
				all = append(all, s)
			}
		}
	}
	copied := func(same []emit.Step) (n int64) {
		for _, s := range same {
			n += s.Copied
		}
		return n
	}
	rows := grouped(all, func(s emit.Step) [2]string { return [2]string{s.What, s.Why} })
	slices.SortStableFunc(rows, func(a, b []emit.Step) int { return cmp.Compare(copied(b), copied(a)) })
	t := table{head: []string{"op", ">times", ">copies", "why"}}
	for _, same := range rows {
		t.row(same[0].What, len(same), copied(same), same[0].Why)
	}
	t.section(w, "fallbacks: what GoMLX's backend runs")
}
