// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	_ "embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"slices"
	"time"
)

// A flame graph shows where the time of the devices went: what is below a box is part of it, and is as wide as its share. Its boxes are those of [Profile.stacks].
type flame struct {
	Width, Height px
	Boxes         []flameBox
}

// flameBox is a name of a stack. Label is what fits into it of its name.
type flameBox struct {
	Class, Text, Label string
	X, Y, W, H         px
	LabelX, LabelY     px
}

const (
	flameHeight = 20
	flameGap    = 2
	narrowBox   = 0.4 // a box that is narrower is not drawn
	flameColors = 6
)

var (
	//go:embed flame.svg
	flameSVG string
	//go:embed flame.css
	flameCSS string

	flameTemplate = template.Must(template.New("flame").Funcs(template.FuncMap{
		"flamecss": func() template.CSS { return template.CSS(flameCSS) },
	}).Parse(flameSVG))
)

// flameNode is a part of the time, and what it consists of.
type flameNode struct {
	name  string
	time  time.Duration
	parts []*flameNode
	lost  bool // no device computes in it
}

// part finds or makes one.
func (n *flameNode) part(name string) *flameNode {
	if i := slices.IndexFunc(n.parts, func(p *flameNode) bool { return p.name == name }); i >= 0 {
		return n.parts[i]
	}
	p := &flameNode{name: name}
	n.parts = append(n.parts, p)
	return p
}

// tree adds up the stacks.
func (p *Profile) tree() *flameNode {
	root := &flameNode{name: p.Program}
	p.stacks(func(names []string, o OpTime) {
		root.time += o.Time
		at := root
		for _, name := range names {
			at = at.part(name)
			at.time += o.Time
		}
		at.lost = slices.Contains(lossParts, names[0])
	})
	return root
}

// flame lays the tree out, width pixels wide.
func (p *Profile) flame(width int) *flame {
	f := &flame{Width: px(max(width, narrowest))}
	root := p.tree()
	f.add(root, root.time, 0, 0)
	return f
}

// add lays out a node that begins after some time, and below it its parts.
func (f *flame) add(n *flameNode, all time.Duration, from time.Duration, depth int) {
	scale := float64(f.Width) / float64(max(all, 1))
	box := flameBox{X: px(float64(from) * scale), Y: px(depth * (flameHeight + flameGap)), W: px(float64(n.time)*scale - 1), H: flameHeight,
		Class: n.class(), Text: fmt.Sprintf("%s\n%s, %s of all", plain(n.name), duration(n.time), share(n.time, all))}
	if box.W < narrowBox {
		return
	}
	box.LabelX, box.LabelY = box.X+4, box.Y+14
	box.Label = fitting(plain(n.name), float64(box.W)-8)
	f.Boxes = append(f.Boxes, box)
	f.Height = max(f.Height, box.Y+box.H)
	slices.SortStableFunc(n.parts, func(a, b *flameNode) int {
		return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(a.name, b.name))
	})
	for _, part := range n.parts {
		f.add(part, all, from, depth+1)
		from += part.time
	}
}

// class is the colour of a node: that of its name, wherever that is.
func (n *flameNode) class() string {
	if n.lost {
		return "lost"
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(n.name))
	return fmt.Sprintf("c%d", h.Sum32()%flameColors)
}

// fitting is as much of a text as fits into so many pixels; nothing, if that is too little to know it by.
func fitting(text string, width float64) string {
	runes, fits := []rune(text), int(width/letterWidth)
	switch {
	case len(runes) <= fits:
		return text
	case fits < 4:
		return ""
	}
	return string(runes[:fits-1]) + "…"
}
