// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package emit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/easyparallel/epl/ir"
)

// Site is a place in the model, and the share of a step that is its own.
type Site struct {
	Line, TaskGraph, Scope string // "": it is not known
	Share                  float64
}

// Division divides a step among the places in the model that its ops come from, by their work.
type Division struct {
	sites []Site
	sum   float64
}

// Add adds the work of an op.
func (d *Division) Add(of ir.Attribution, work float64) {
	at := Site{Line: string(of.Source), TaskGraph: of.TaskGraph.Title(), Scope: of.Scope}
	i := slices.IndexFunc(d.sites, func(s Site) bool { return s.Line == at.Line && s.TaskGraph == at.TaskGraph && s.Scope == at.Scope })
	if i < 0 {
		i, d.sites = len(d.sites), append(d.sites, at)
	}
	d.sites[i].Share += work
	d.sum += work
}

// Sites are the places; those that have most come first.
func (d *Division) Sites() []Site {
	all := slices.Clone(d.sites)
	for i := range all {
		all[i].Share /= d.sum
	}
	slices.SortStableFunc(all, func(a, b Site) int { return cmp.Compare(b.Share, a.Share) })
	return all
}

// Times writes a shape as "64×512".
func Times[T int | int64](dims []T) string {
	if len(dims) == 0 {
		return "1"
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(dims), "[]"), " ", "×")
}

// OpNames are the types of ops in order, with how many there are of each.
func OpNames(ops []*ir.Op) string {
	var order []string
	number := map[string]int{}
	for _, op := range ops {
		name := string(op.Type())
		if number[name]++; number[name] == 1 {
			order = append(order, name)
		}
	}
	for i, name := range order {
		if n := number[name]; n > 1 {
			order[i] = fmt.Sprintf("%s×%d", name, n)
		}
	}
	return strings.Join(order, " ")
}
