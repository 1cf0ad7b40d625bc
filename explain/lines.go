// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/easyparallel/epl/ir"
)

// This file makes of the stages of a program what the page lists: lines that are aligned over stages, so that an op
// stands at the same height in every column, and with every line told once for all stages in which it is the same.

// line is what one stage shows of an op, or of where a function begins or ends. It has no pointers: equal lines look
// equal. In the page, names are short and what is zero is left out, since there are many.
type line struct {
	Kind      lineKind `json:"k,omitempty"`
	ID        int      `json:"i"`           // of the op; of the op that a closure belongs to
	Op        string   `json:"o,omitempty"` // operation; for other kinds, the name of the function
	Inputs    string   `json:"n,omitempty"` // "3 4.1 _": values without %; of a return, what is returned
	Attrs     string   `json:"x,omitempty"`
	Outputs   string   `json:"s,omitempty"` // their shapes, separated by ";"
	Twin      string   `json:"w,omitempty"` // as Inputs
	TaskGraph int      `json:"t,omitempty"` // ID+1; 0: outside
	Phase     ir.Phase `json:"p,omitempty"`
	Origin    string   `json:"g,omitempty"` // "" if recorded
	Source    string   `json:"l,omitempty"`
	Depth     int      `json:"d,omitempty"` // 0: main
	Leaf      bool     `json:"f,omitempty"`
}

type lineKind uint8

const (
	opLine lineKind = iota
	openLine
	returnLine
)

// slot is a height at which stages show lines. At most one of them is shown in any stage.
type slot struct {
	key   string
	lines []span
}

// span is a line together with the stages that show it: From, From+1, …, Until-1.
type span struct {
	line
	From  int `json:"a,omitempty"`
	Until int `json:"z"`
}

// at returns the line that the slot shows in a stage, or nil.
func (s *slot) at(stage int) *span {
	for i := range s.lines {
		if l := &s.lines[i]; l.From <= stage && stage < l.Until {
			return l
		}
	}
	return nil
}

// align puts the lines of all stages into slots. sizes has the bytes of every shape in them.
func align(stages []Stage) (slots []*slot, sizes map[string]int64) {
	t := texter{attrs: map[ir.Attrs]string{}, sizes: map[string]int64{}}
	for i, s := range stages {
		slots = addStage(slots, i, t.program(s.Program))
	}
	return slots, t.sizes
}

type keyed struct {
	key string
	line
}

// addStage adds the lines of stage i. A line goes to the slot that its key had, as far as the order of lines allows;
// others get new slots, behind what was removed at that place.
func addStage(slots []*slot, i int, lines []keyed) []*slot {
	at := map[string]int{} // the slot of each key, from 1; the last one, where it moved
	for n, s := range slots {
		at[s.key] = n + 1
	}
	place := make([]int, len(lines)) // -1: a new slot
	for n, l := range lines {
		place[n] = at[l.key] - 1
	}
	keepIncreasing(place)
	lineAt := map[int]int{}
	for n, p := range place {
		if p >= 0 {
			lineAt[p] = n
		}
	}
	all := make([]*slot, 0, len(slots)+len(lines)/8)
	next := 0 // the first line that has no slot yet
	before := func(end int) {
		for ; next < end; next++ {
			s := &slot{key: lines[next].key}
			s.add(i, lines[next].line)
			all = append(all, s)
		}
	}
	for n, s := range slots {
		if k, ok := lineAt[n]; ok {
			before(k)
			s.add(i, lines[k].line)
			next = k + 1
		}
		all = append(all, s)
	}
	before(len(lines))
	return all
}

func (s *slot) add(stage int, l line) {
	if n := len(s.lines); n > 0 && s.lines[n-1].Until == stage && s.lines[n-1].line == l {
		s.lines[n-1].Until++
		return
	}
	s.lines = append(s.lines, span{l, stage, stage + 1})
}

// keepIncreasing sets to -1 as few places as it can, so that the others increase.
func keepIncreasing(place []int) {
	var ends []int // ends[n] is the index of the smallest place at which n+1 increasing ones end
	previous := make([]int, len(place))
	for i, p := range place {
		if p < 0 {
			continue
		}
		n, _ := slices.BinarySearchFunc(ends, p, func(e, p int) int { return place[e] - p })
		previous[i] = -1
		if n > 0 {
			previous[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	kept := slices.Repeat([]int{-1}, len(place))
	if len(ends) > 0 {
		for i := ends[len(ends)-1]; i >= 0; i = previous[i] {
			kept[i] = place[i]
		}
	}
	copy(place, kept)
}

// texter turns programs into lines.
type texter struct {
	attrs map[ir.Attrs]string // attributes never change, so that their text is made once for all stages
	sizes map[string]int64
}

func (t *texter) program(p *ir.Program) []keyed {
	var lines []keyed
	named := map[*ir.Func]string{}
	shown := map[*ir.Func]bool{} // closures that two ops share are shown with the first
	var body func(f *ir.Func, name, key string, depth int)
	body = func(f *ir.Func, name, key string, depth int) {
		if f != p.Main {
			lines = append(lines, keyed{key + "{", line{Kind: openLine, Op: name, Depth: depth - 1}})
		}
		for _, op := range f.Ops {
			l := t.op(op, depth)
			var closures []*ir.Func
			var names []string
			for i, g := range op.Funcs {
				switch {
				case g.Parent == nil:
					named[g] = fmt.Sprintf("func %q", g.Name)
				case !shown[g]:
					shown[g] = true
					named[g] = fmt.Sprintf("closure %d of %%%d", i, op.ID)
					closures = append(closures, g)
				}
				names = append(names, named[g])
			}
			l.Attrs = strings.TrimSpace(l.Attrs + " " + strings.Join(names, ", "))
			lines = append(lines, keyed{fmt.Sprint(op.ID), l})
			for _, g := range closures {
				body(g, named[g], named[g], depth+1)
			}
		}
		end := line{Kind: returnLine, Inputs: valueNames(f.Outputs), Depth: depth}
		lines = append(lines, keyed{key + "}", end})
	}
	for _, f := range p.Funcs {
		name := fmt.Sprintf("func %q", f.Name)
		body(f, name, name, 1)
	}
	body(p.Main, "main", "main", 0)
	return lines
}

func (t *texter) op(op *ir.Op, depth int) line {
	l := line{
		ID: op.ID, Op: string(op.Type()), Inputs: valueNames(op.Inputs), Attrs: t.attrsText(op.Attrs), Twin: valueNames(op.Twin),
		Phase: op.Phase, Source: string(op.Source), Depth: depth, Leaf: op.IsLeaf(),
	}
	shapes := make([]string, len(op.Outputs))
	for i, v := range op.Outputs {
		shapes[i] = strings.ReplaceAll(ir.ShapeText(v.Shape), ";", ",") // an axis may have a ";" in its name
		t.sizes[shapes[i]] = v.Bytes()
	}
	l.Outputs = strings.Join(shapes, ";")
	if op.TaskGraph != nil {
		l.TaskGraph = op.TaskGraph.ID + 1
	}
	if op.Origin != ir.Recorded {
		l.Origin = op.Origin.String()
	}
	return l
}

// maxAttrs is how long the text of attributes may be on the page. The text files have all of it.
const maxAttrs = 300

// attrsText is the text of attributes as in program text, but short for what every model has in numbers.
func (t *texter) attrsText(a ir.Attrs) string {
	if text, ok := t.attrs[a]; ok {
		return text
	}
	// An op without anything else prints as "%0 = Name() {attributes} -> : forward".
	text := (&ir.Op{Attrs: a}).Text()
	text = strings.TrimPrefix(text, fmt.Sprintf("%%0 = %s()", a.OpType()))
	text = strings.TrimSpace(strings.TrimSuffix(text, "-> : forward"))
	switch a := a.(type) {
	case *ir.Parameter:
		if a.Sharding == nil {
			text = fmt.Sprintf("%q", a.Name)
		}
	case *ir.Constant:
		text = strings.TrimPrefix(text, "{Value: "+ir.ShapeText(a.Value.Shape))
		text = strings.TrimSuffix(text, "}")
	}
	if r := []rune(text); len(r) > maxAttrs {
		text = string(r[:maxAttrs]) + "…"
	}
	t.attrs[a] = text
	return text
}

// valueNames lists values as "3 4.1 _".
func valueNames(vs []*ir.Value) string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = strings.TrimPrefix(v.String(), "%")
	}
	return strings.Join(names, " ")
}
