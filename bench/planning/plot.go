// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
)

// The picture: two plots side by side.
const (
	plotWidth, plotHeight = 380., 240.
	marginLeft, marginTop = 64., 40.
	plotPitch             = plotWidth + marginLeft + 24
)

// point is what a row took.
type point struct{ x, y float64 }

// draw draws what searches cost, by devices and by depth.
func draw(file string) error {
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="12">`+"\n", 2*plotPitch, marginTop+plotHeight+56)
	s.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, t := range tables[:2] {
		x := func(r row) float64 { return float64(r.devices()) }
		label := "devices"
		if i == 1 {
			x, label = func(r row) float64 { return float64(r.Layers) }, "layers"
		}
		lines := map[string][]point{}
		for _, r := range t.rows {
			if r.made != nil {
				lines[r.Model] = append(lines[r.Model], point{x(r), r.cpu})
			}
		}
		plot(&s, marginLeft+float64(i)*plotPitch, "seconds of CPU, "+t.name, label, i == 0, lines)
	}
	s.WriteString("</svg>\n")
	return os.WriteFile(file, []byte(s.String()), 0o644)
}

// plot draws the lines of one plot, whose left edge is given.
func plot(s *strings.Builder, left float64, title, label string, logarithmic bool, lines map[string][]point) {
	scale := func(x float64) float64 { return x }
	if logarithmic {
		scale = math.Log2
	}
	least, most, top := math.Inf(1), math.Inf(-1), 0.0
	ticks := map[float64]bool{}
	for _, l := range lines {
		for _, p := range l {
			least, most, top = min(least, scale(p.x)), max(most, scale(p.x)), max(top, p.y)
			ticks[p.x] = true
		}
	}
	if !logarithmic {
		least = 0
	}
	step := math.Pow(10, math.Floor(math.Log10(top)))
	for _, n := range []float64{5, 2} {
		if top/step < n {
			step /= n
			break
		}
	}
	top = step * math.Ceil(top/step)
	at := func(p point) (x, y float64) {
		return left + (scale(p.x)-least)/max(most-least, 1e-9)*plotWidth, marginTop + plotHeight*(1-p.y/top)
	}
	text := func(x, y float64, anchor, t string) {
		fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, t)
	}
	text(left, marginTop-18, "start", title)
	text(left+plotWidth/2, marginTop+plotHeight+40, "middle", label)
	for y := 0.0; y <= top*1.001; y += step {
		_, h := at(point{math.Max(1, least), y})
		fmt.Fprintf(s, `<path d="M%.1f %.1fh%.1f" stroke="#ddd"/>`+"\n", left, h, plotWidth)
		text(left-8, h+4, "end", fmt.Sprintf("%.3g", y))
	}
	for _, x := range slices.Sorted(maps.Keys(ticks)) {
		w, _ := at(point{x, 0})
		text(w, marginTop+plotHeight+18, "middle", fmt.Sprint(x))
	}
	for i, model := range []string{bert, m6} {
		colour := []string{"#1f77b4", "#d62728"}[i]
		for j, p := range lines[model] {
			x, y := at(p)
			fmt.Fprintf(s, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x, y, colour)
			if j > 0 {
				x0, y0 := at(lines[model][j-1])
				fmt.Fprintf(s, `<path d="M%.1f %.1fL%.1f %.1f" stroke="%s" stroke-width="2" fill="none"/>`+"\n", x0, y0, x, y, colour)
			}
		}
		fmt.Fprintf(s, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", left+250+70*float64(i), marginTop-22, colour)
		text(left+258+70*float64(i), marginTop-18, "start", model)
	}
}
