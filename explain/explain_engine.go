package explain

import (
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
	sentence(w, fmt.Sprintf("%s; %s for intermediate tensors; %d of %s in the memory of an input",
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
		flops, copies := "-", "-"
		if sum.Flops > 0 {
			flops = fmt.Sprintf("%.4g", float64(sum.Flops)/1e9)
		}
		if sum.Copied > 0 {
			copies = bytesText(sum.Copied)
		}
		t.row(kind, fmt.Sprint(steps), fmt.Sprint(sum.Ops), flops, bytesText(sum.Read), bytesText(sum.Written), copies)
	}
	t.write(w, "    ")
	r.writeFallbacks(w)
}

// writeFallbacks prints what another backend runs, and why.
func (r *report) writeFallbacks(w *strings.Builder) {
	type row struct {
		what, why string
		times     int
		copied    int64
	}
	var rows []row
	for _, l := range r.Listings {
		for _, s := range l.Steps {
			if s.Kind != emit.Fallback {
				continue
			}
			i := slices.IndexFunc(rows, func(x row) bool { return x.what == s.What && x.why == s.Why })
			if i < 0 {
				i = len(rows)
				rows = append(rows, row{what: s.What, why: s.Why})
			}
			rows[i].times++
			rows[i].copied += s.Copied
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return int(max(min(b.copied-a.copied, 1), -1)) })
	t := table{head: []string{"op", ">times", ">copies", "why"}}
	for _, x := range rows {
		t.row(x.what, fmt.Sprint(x.times), bytesText(x.copied), x.why)
	}
	t.section(w, "fallbacks: what GoMLX's backend runs")
}
