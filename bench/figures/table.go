// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// row is a published value and what is predicted.
type row struct {
	figure, what         string
	gpus                 int
	published, predicted float64
	ratio                bool // of two others: it has no rank among them
}

// off is the error of a prediction.
func (r row) off() float64 { return r.predicted/r.published - 1 }

// table is what is printed.
type table struct {
	*planner
	figure string // of the rows that are being predicted
	rows   []row
	notes  []string // what was calibrated, and what is assumed
	known  []row    // those by which that was
}

func (t *table) note(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(t.notes, line) {
		t.notes = append(t.notes, line)
	}
}

func (t *table) add(what string, gpus int, published, predicted float64) {
	t.rows = append(t.rows, row{t.figure, what, gpus, published, predicted, false})
}

// ratio adds a row of two throughputs.
func (t *table) ratio(what string, gpus int, published, predicted float64) {
	t.rows = append(t.rows, row{t.figure, what, gpus, published, predicted, true})
}

// given says that something was calibrated by a row.
func (t *table) given(figure, what string, gpus int) {
	t.known = append(t.known, row{figure: figure, what: what, gpus: gpus})
}

// isGiven tells whether a row is not predicted.
func (t *table) isGiven(r row) bool {
	return slices.ContainsFunc(t.known, func(k row) bool { return k.figure == r.figure && k.what == r.what && k.gpus == r.gpus })
}

// reading is by how much published values differ at least that are not the same.
const reading = 0.02

// misordered are pairs of rows of a figure, on as many GPUs, of which the other one is larger than published.
func (t *table) misordered() (pairs [][2]row) {
	for i, a := range t.rows {
		for _, b := range t.rows[i+1:] {
			if a.figure != b.figure || a.gpus != b.gpus || a.ratio || b.ratio {
				continue
			}
			high, low := a, b
			if a.published < b.published {
				high, low = b, a
			}
			if high.published > low.published*(1+reading) && high.predicted <= low.predicted {
				pairs = append(pairs, [2]row{high, low})
			}
		}
	}
	return pairs
}

// tolerated is the error up to which a row does not fail.
const tolerated = 0.1

func (t *table) write(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| figure | what | GPUs | published | predicted | error |\n|---|---|---|---|---|---|\n")
	var errs []float64
	of := map[string][]float64{}
	var names []string
	for _, r := range t.rows {
		off := fmt.Sprintf("%+.0f%%", 100*r.off())
		if t.isGiven(r) {
			off = "given"
		} else {
			if of[r.figure] == nil {
				names = append(names, r.figure)
			}
			errs, of[r.figure] = append(errs, math.Abs(r.off())), append(of[r.figure], math.Abs(r.off()))
			if math.Abs(r.off()) > tolerated {
				off = "**" + off + "**"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s |\n", r.figure, r.what, r.gpus, digits(r.published), digits(r.predicted), off)
	}
	b.WriteString("\n")
	for _, line := range t.notes {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	if len(errs) > 0 {
		within := 0
		for _, e := range errs {
			if e <= tolerated {
				within++
			}
		}
		fmt.Fprintf(&b, "\nMedian error of %d predictions: %.1f %%; %d are within %.0f %%. By figure:", len(errs), 100*median(errs), within, 100*tolerated)
		for i, name := range names {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, " %s %.1f %%", name, 100*median(of[name]))
		}
		b.WriteString(".\n")
	}
	pairs := t.misordered()
	if len(pairs) == 0 {
		b.WriteString("No two rows of a figure are in the wrong order.\n")
	}
	for _, p := range pairs {
		fmt.Fprintf(&b, "Wrong order: figure %s on %d GPUs, %s (%s, predicted %s) and %s (%s, predicted %s).\n", p[0].figure, p[0].gpus,
			p[0].what, digits(p[0].published), digits(p[0].predicted), p[1].what, digits(p[1].published), digits(p[1].predicted))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// digits prints three digits, or all of those before the point.
func digits(x float64) string {
	if math.Abs(x) >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}
