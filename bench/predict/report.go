// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/gomlx/compute/support/humanize"
)

// What predictions are to reach.
const (
	wantCorrelation = 0.9
	wantTime        = 0.15
	wantMemory      = 0.10
	wantChoice      = 1.10 // the planner's choice, as a part of the best
)

// report is what came of it.
type report struct {
	Source   string  // of the profile
	Quantile float64 // of the times of steps
	Rows     []*Row
	Failed   []string // rows that did not train, and why
}

// write writes files with the report and all times.
func (x *report) write(name string) error {
	f, err := os.Create(name + ".md")
	if err != nil {
		return err
	}
	x.print(f)
	if err := f.Close(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(x, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name+".json", append(text, '\n'), 0o644)
}

// print prints the table and what it says.
func (x *report) print(w io.Writer) {
	fmt.Fprintf(w, "The last profile: %s. Measured is the %s of steps; 10 to 90 %% of them are in the range beside it. Speed is what this machine had of its processor in the turns that count, 1 being as when it was calibrated: other machines may share it. Memory is that of the device that needs most; "+
		"process is what the worker's process grew by, beside the sum over its devices. Errors above the aim are bold.\n\n", x.Source, ofTimes(x.Quantile))
	fmt.Fprintln(w, "| model | plan | samples | predicted ms | measured ms | range | speed | error | predicted memory | metered | error | process predicted | measured | error |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range x.Rows {
		name := r.Name
		if r.Chosen != "" {
			name += ": " + r.Chosen
		}
		fmt.Fprintf(w, "| %s | %s | %d | %.1f | %.1f | %.0f–%.0f | %.2f | %s | %s | %s | %s | %s | %s | %s |\n", r.Network, name, r.Samples, r.PredictedMS, r.MS, r.Low, r.High, r.Speed,
			bold(r.timeError(), wantTime), humanize.Bytes(r.PredictedMemory), humanize.Bytes(r.Memory), bold(r.memoryError(), wantMemory),
			humanize.Bytes(r.PredictedProcess), humanize.Bytes(r.Process), bold(r.processError(), wantMemory))
	}
	for _, why := range x.Failed {
		fmt.Fprintf(w, "\nFailed: %s\n", why)
	}
	if len(x.Rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%d rows.\n\n| what | got | aim | |\n|---|---|---|---|\n", len(x.Rows))
	line := func(what string, got string, want string, ok bool) {
		said := "reached"
		if !ok {
			said = "**missed**"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", what, got, want, said)
	}
	above := func(what string, rows []*Row) {
		if len(rows) < 3 {
			return // two have no order to speak of
		}
		c := correlation(rows)
		line(what, fmt.Sprintf("%.3f", c), fmt.Sprintf("≥ %g", wantCorrelation), c >= wantCorrelation)
	}
	above("rank correlation of times, all rows", x.Rows)
	for _, rows := range networksOf(x.Rows) {
		above("rank correlation of times, "+rows[0].Network, rows)
	}
	below := func(what string, of func(*Row) float64, want float64) {
		e := medianOf(x.Rows, of)
		line(what, fmt.Sprintf("%.1f %%", 100*e), fmt.Sprintf("≤ %g %%", 100*want), e <= want)
	}
	below("median error of times", (*Row).timeError, wantTime)
	fmt.Fprintf(w, "| median error of times, if predictions are slowed down by the column speed | %.1f %% | | |\n", 100*medianOf(x.Rows, func(r *Row) float64 { return r.PredictedMS/r.Speed/r.MS - 1 }))
	below("median error of memory", (*Row).memoryError, wantMemory)
	fmt.Fprintf(w, "| median error of the process's memory, which also has what is no device's | %.1f %% | | |\n", 100*medianOf(x.Rows, (*Row).processError))
	for _, rows := range networksOf(x.Rows) {
		chosen, best := choice(rows)
		if chosen != nil {
			ratio := chosen.MS / best.MS
			if chosen.plan == best.plan {
				ratio = 1 // the same plan, measured twice
			}
			line(fmt.Sprintf("%s: the planner's choice (%s) against the best (%s)", chosen.Network, chosen.Chosen, best.Name), fmt.Sprintf("%.3f", ratio), fmt.Sprintf("≤ %g", wantChoice), ratio <= wantChoice)
		}
	}
}

func ofTimes(quantile float64) string {
	if quantile == 0.5 {
		return "median"
	}
	return fmt.Sprintf("%g quantile", quantile)
}

func bold(e, aim float64) string {
	text := fmt.Sprintf("%+.0f %%", 100*e)
	if math.Abs(e) > aim {
		text = "**" + text + "**"
	}
	return text
}

func (r *Row) timeError() float64    { return r.PredictedMS/r.MS - 1 }
func (r *Row) memoryError() float64  { return float64(r.PredictedMemory)/float64(r.Memory) - 1 }
func (r *Row) processError() float64 { return float64(r.PredictedProcess)/float64(r.Process) - 1 }

// networksOf are the rows of each network, which follow each other.
func networksOf(rows []*Row) (all [][]*Row) {
	for i, r := range rows {
		if i == 0 || r.Network != rows[i-1].Network {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], r)
	}
	return all
}

// choice is the row that the planner chose, nil if there is none, and the fastest of those that train as many samples on the same devices.
func choice(rows []*Row) (chosen, best *Row) {
	i := slices.IndexFunc(rows, func(r *Row) bool { return r.Auto })
	if i < 0 {
		return nil, nil
	}
	chosen = rows[i]
	for _, r := range rows {
		if r.Devices == chosen.Devices && r.Workers == chosen.Workers && r.Samples == chosen.Samples && (best == nil || r.MS < best.MS) {
			best = r
		}
	}
	return chosen, best
}

// correlation is Spearman's, between predicted and measured times.
func correlation(rows []*Row) float64 {
	predicted := ranks(rows, func(r *Row) float64 { return r.PredictedMS })
	measured := ranks(rows, func(r *Row) float64 { return r.MS })
	mean := float64(len(rows)-1) / 2
	var xy, xx, yy float64
	for i := range rows {
		x, y := predicted[i]-mean, measured[i]-mean
		xy, xx, yy = xy+x*y, xx+x*x, yy+y*y
	}
	return xy / math.Sqrt(xx*yy)
}

// ranks are the places of rows in the order of a value; equal ones share the mean of theirs.
func ranks(rows []*Row, of func(*Row) float64) []float64 {
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(of(rows[a]), of(rows[b])) })
	all := make([]float64, len(rows))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && of(rows[order[j]]) == of(rows[order[i]]) {
			j++
		}
		for _, k := range order[i:j] {
			all[k] = float64(i+j-1) / 2
		}
		i = j
	}
	return all
}

// medianOf is the median of the size of errors.
func medianOf(rows []*Row, of func(*Row) float64) float64 {
	var all []float64
	for _, r := range rows {
		all = append(all, math.Abs(of(r)))
	}
	return quantile(all, 0.5)
}

// quantile is the value below which a part of all are.
func quantile(all []float64, part float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	at := part * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
