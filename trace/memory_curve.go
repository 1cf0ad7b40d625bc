// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"
)

// memoryCurve is the memory of a device over a step, by use, one above the other.
type memoryCurve struct {
	Width, Height px
	Areas         []memoryArea // in the order of drawing: each covers the foot of those before it
	Most          string
	Span          string
}

// memoryArea is a use and all that lies below it, as the data of an SVG path.
type memoryArea struct {
	Class, Text, Path string
	X, Y              px // of its entry in the legend
}

const (
	curveHeight = 140
	curveTop    = 18
	legendSpace = 130
)

var (
	//go:embed memory.svg
	memorySVG string
	//go:embed memory.css
	memoryCSS string

	memoryTemplate = template.Must(template.New("memory").Funcs(template.FuncMap{
		"memorycss": func() template.CSS { return template.CSS(memoryCSS) },
	}).Parse(memorySVG))
)

// curve draws the memory of a device; nil: nothing is known of it.
func (s *Step) curve(device, width int) *memoryCurve {
	samples := slices.DeleteFunc(s.Memory(), func(m Memory) bool { return m.Device != device })
	begin, end := bounds(s.Events())
	if len(samples) == 0 || !end.After(begin) {
		return nil
	}
	uses, most := usesOf(samples)
	c := &memoryCurve{Width: px(max(width, narrowest)), Height: curveTop + curveHeight + 28, Most: bytesText(most), Span: duration(end.Sub(begin))}
	x := func(t time.Time) px {
		return max(px(float64(t.Sub(begin))/float64(end.Sub(begin)))*c.Width, 0)
	}
	y := func(bytes int64) px { return curveTop + curveHeight*(1-px(bytes)/px(max(most, 1))) }
	for n := len(uses); n > 0; n-- { // the highest first
		var path strings.Builder
		fmt.Fprintf(&path, "M%s %s", x(samples[0].At), y(0))
		for _, m := range samples {
			sum := int64(0)
			for _, use := range uses[:n] {
				sum += m.Bytes[use]
			}
			fmt.Fprintf(&path, "H%sV%s", x(m.At), y(sum))
		}
		fmt.Fprintf(&path, "H%sV%sZ", c.Width, y(0))
		c.Areas = append(c.Areas, memoryArea{Class: fmt.Sprintf("u%d", n-1), Text: plain(uses[n-1]), Path: path.String(),
			X: px(n-1) * legendSpace, Y: curveTop + curveHeight + 12})
	}
	return c
}

// usesOf are the uses of memory that samples have, the steadiest first, so that what changes is on top; and the most that they come to.
func usesOf(samples []Memory) (uses []string, most int64) {
	least, largest := map[string]int64{}, map[string]int64{}
	for i, m := range samples {
		sum := int64(0)
		for use, n := range m.Bytes {
			sum += n
			if old, ok := least[use]; i == 0 || !ok || n < old {
				least[use] = n
			}
			largest[use] = max(largest[use], n)
		}
		most = max(most, sum)
	}
	uses = slices.Sorted(maps.Keys(largest))
	uses = slices.DeleteFunc(uses, func(use string) bool { return largest[use] <= 0 })
	slices.SortStableFunc(uses, func(a, b string) int { return int(min(max(largest[a]-least[a]-largest[b]+least[b], -1), 1)) })
	return uses, most
}
