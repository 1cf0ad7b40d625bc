// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"
)

// memoryCurve is the memory of a device over a step, by use or by place in the model, one above the other.
type memoryCurve struct {
	By            string
	Width, Height px
	Areas         []memoryArea // in the order of drawing: each covers the foot of those before it
	Most          string
	Span          string
}

// memoryArea is a use, or a place, and all that lies below it, as the data of an SVG path.
type memoryArea struct {
	Class, Text, Path string
	X, Y              px // of its entry in the legend
}

const (
	curveHeight = 140
	curveTop    = 18
	legendSpace = 130
	legendLine  = 18
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

// curves draw the memory of a device: by use, and by place.
func (s *Step) curves(device, width int) (all []*memoryCurve) {
	for _, c := range []*memoryCurve{s.curve("use", s.Memory(), device, width), s.curve("place in the model", few(s.Sites(), device), device, width)} {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// mostAreas is how many colors there are.
const mostAreas = 7

// few leaves the places that have most at some time, and adds up the others.
func few(samples []Memory, device int) (all []Memory) {
	largest := map[string]int64{}
	for _, m := range samples {
		for site, n := range m.Bytes {
			if m.Device == device {
				largest[site] = max(largest[site], n)
			}
		}
	}
	order := slices.SortedFunc(maps.Keys(largest), func(a, b string) int { return cmp.Or(cmp.Compare(largest[b], largest[a]), cmp.Compare(a, b)) })
	if len(order) > mostAreas {
		order = order[:mostAreas-1]
	}
	for _, m := range samples {
		by := map[string]int64{}
		for site, n := range m.Bytes {
			if !slices.Contains(order, site) {
				site = "others"
			}
			by[site] += n
		}
		all = append(all, Memory{m.Device, m.At, by})
	}
	return all
}

// curve draws samples of a device; nil: there are none.
func (s *Step) curve(by string, samples []Memory, device, width int) *memoryCurve {
	samples = slices.DeleteFunc(samples, func(m Memory) bool { return m.Device != device })
	begin, end := bounds(s.Events())
	if len(samples) == 0 || !end.After(begin) {
		return nil
	}
	uses, most := usesOf(samples)
	c := &memoryCurve{By: by, Width: px(max(width, narrowest)), Height: curveTop + curveHeight + 28, Most: bytesText(most), Span: duration(end.Sub(begin))}
	x := func(t time.Time) px {
		return max(px(float64(t.Sub(begin))/float64(end.Sub(begin)))*c.Width, 0)
	}
	y := func(bytes int64) px { return curveTop + curveHeight*(1-px(bytes)/px(max(most, 1))) }
	space := px(legendSpace)
	for _, use := range uses {
		space = max(space, px(7*len([]rune(use))+40))
	}
	across := max(int(c.Width/space), 1)
	c.Height += px((len(uses)-1)/across) * legendLine
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
			X: px((n-1)%across) * space, Y: curveTop + curveHeight + 12 + px((n-1)/across)*legendLine})
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
