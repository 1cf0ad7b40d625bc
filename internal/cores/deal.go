// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cores

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Place is where a core lies: cores with the same numbers are threads of one physical core.
type Place struct{ Package, Core int }

// PlaceOf finds where a core of this machine lies.
func PlaceOf(core int) Place { return placeOf("/sys/devices/system/cpu", core) }

func placeOf(root string, core int) Place {
	folder := fmt.Sprintf("%s/cpu%d/topology/", root, core)
	p := Place{Core: core}
	if siblings := read(folder + "thread_siblings_list"); len(siblings) > 0 {
		p.Core = siblings[0]
	}
	if text, err := os.ReadFile(folder + "physical_package_id"); err == nil {
		if id, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			p.Package = id
		}
	}
	return p
}

// Deal deals cores to workers, so that no two have the same one: neighbours together, and whole physical cores where
// there is one for each worker. Where there are fewer cores than workers each gets one, which as few others as possible have.
func Deal(all []int, workers int, place func(core int) Place) [][]int {
	at := map[int]Place{}
	for _, c := range all {
		at[c] = place(c)
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b int) int {
		return cmp.Or(cmp.Compare(at[a].Package, at[b].Package), cmp.Compare(at[a].Core, at[b].Core), cmp.Compare(a, b))
	})
	var units [][]int // what is not divided
	for i, c := range all {
		if i > 0 && at[all[i-1]] == at[c] {
			units[len(units)-1] = append(units[len(units)-1], c)
		} else {
			units = append(units, []int{c})
		}
	}
	if len(units) < workers {
		units = units[:0]
		for _, c := range all {
			units = append(units, []int{c})
		}
	}
	dealt := make([][]int, workers)
	for w := range dealt {
		from, to := w*len(units)/workers, (w+1)*len(units)/workers
		dealt[w] = slices.Concat(units[from:max(to, from+1)]...)
		slices.Sort(dealt[w])
	}
	return dealt
}
