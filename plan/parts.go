// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/easyparallel/epl/ir"
)

// family are variables of one shape: those that a model repeats.
type family struct {
	shape string
	bytes int64
	of    map[*ir.Variable]bool
}

// families are those of the trained variables, the largest first.
func (c *chain) families() (all []family, total int64) {
	index := map[string]int{}
	for _, v := range c.p.Variables {
		if !v.Trainable {
			continue
		}
		shape := ir.ShapeText(v.Param.Shape)
		i, ok := index[shape]
		if !ok {
			i = len(all)
			index[shape] = i
			all = append(all, family{shape: shape, of: map[*ir.Variable]bool{}})
		}
		all[i].bytes += v.Param.Bytes()
		all[i].of[v] = true
		total += v.Param.Bytes()
	}
	slices.SortStableFunc(all, func(a, b family) int { return cmp.Compare(b.bytes, a.bytes) })
	return all, total
}

// parts name parts of the model that may be worth a split of their own, while the rest is replicated: variables of a few shapes that have most of the
// bytes, but few of the products, such as a wide classifier or the experts of a mixture.
func (s *searcher) parts() []string {
	const most, families = 0.6, 4
	all, total := s.chain.families()
	var sum int64
	for i, f := range all[:min(families, len(all))] {
		if sum += f.bytes; float64(sum) < most*float64(total) || i+1 == len(all) {
			continue
		}
		name, n := partName(all[:i+1]), 0
		heavy := s.chain.heavy(name)
		for _, x := range s.products {
			if heavy[x.of] {
				n++
			}
		}
		if 2*n <= len(s.products) {
			return []string{name}
		}
		break
	}
	return nil
}

// heavy are the variables of a part.
func (c *chain) heavy(part string) map[*ir.Variable]bool {
	heavy := map[*ir.Variable]bool{}
	if part == "" {
		return heavy
	}
	all, _ := c.families()
	for i, f := range all {
		maps.Copy(heavy, f.of)
		if partName(all[:i+1]) == part {
			break
		}
	}
	return heavy
}

func partName(families []family) string {
	n := 0
	for _, f := range families {
		n += len(f.of)
	}
	if n == 1 {
		for v := range families[0].of {
			return strings.TrimPrefix(ir.Stable(v.Path), "/")
		}
	}
	return fmt.Sprintf("%d variables of shape %s", n, families[0].shape)
}

// splitPart makes two TaskGraphs of a cut into one stage, for the same devices: what is replicated, and the heavy part, which is split: its variables,
// and the ops that read them.
func (c *chain) splitPart(cut *Cut, name string, k int) {
	heavy := c.heavy(name)
	cut.Parts = []Part{{Name: "replicated", Devices: k}, {Name: "split", Split: true, Devices: k}}
	cut.Notes = append(cut.Notes, fmt.Sprintf("A part of the model is split over the devices that the rest is replicated on: %s.", name))
	reads := map[*ir.Value]bool{}
	for i, v := range c.p.Variables {
		if heavy[v] {
			cut.Variables[i] = 1
			reads[v.Param] = true
		}
	}
	for i, op := range c.p.Main.Ops {
		if op.IsLeaf() || op.Phase != ir.Forward || cut.Ops[i] < 0 {
			continue
		}
		if slices.ContainsFunc(op.Inputs, func(v *ir.Value) bool { return v != nil && reads[v] }) {
			cut.Ops[i] = 1
			if only(op, reads) { // a cast, or another form of the variable
				for _, v := range op.Outputs {
					reads[v] = true
				}
			}
		}
	}
	for i, op := range c.p.Main.Ops {
		if op.Phase == ir.Backward && op.Of != nil && cut.Ops[i] == 0 {
			if at := slices.Index(c.p.Main.Ops, op.Of.Op); at >= 0 && cut.Ops[at] == 1 {
				cut.Ops[i] = 1
			}
		}
	}
}

// only tells whether an op reads nothing but these values and constants.
func only(op *ir.Op, of map[*ir.Value]bool) bool {
	ok := true
	op.Uses(func(v *ir.Value) {
		_, isConst := v.Op.Attrs.(*ir.Constant)
		ok = ok && (of[v] || isConst)
	})
	return ok
}
