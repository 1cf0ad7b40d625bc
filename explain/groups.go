// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"regexp"
	"strings"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
)

// maxGroups is how many groups of variables are few enough to read.
const maxGroups = 30

// variableGroup is some variables whose paths begin alike.
type variableGroup struct {
	path      string // that of the variable if it is alone, else what all have in common and "/…"
	variables []variableReport
}

// count is how many of the variables are such.
func (g variableGroup) count(is func(v variableReport) bool) (n int) {
	for _, v := range g.variables {
		n += one(is(v))
	}
	return n
}

func (g variableGroup) bytes() (n int64) {
	for _, v := range g.variables {
		n += v.Bytes
	}
	return n
}

func (g variableGroup) taskGraphText() string {
	if n := len(grouped(g.variables, func(v variableReport) *ir.TaskGraph { return v.TaskGraph })); n > 1 {
		return words.Count(n, "TaskGraph")
	}
	return plain(g.variables[0].TaskGraph.Title())
}

// pathText leaves out what is unique in the paths of GoMLX's metrics: it says nothing and makes tables wide.
func pathText(path string) string { return plain(ir.Stable(path)) }

var digits = regexp.MustCompile(`[0-9]+`)

// front returns the first levels of a path, but not its last.
func front(path string, levels int) string {
	parts := strings.Split(path, "/") // the first is empty
	return strings.Join(parts[:max(1, min(levels+1, len(parts)-1))], "/")
}

// groupVariables puts variables together by TaskGraph and by the front of their paths: as much of the paths as leaves
// few enough groups. Where that is not enough, numbers count as equal, as in the layers of a deep model, and then also
// TaskGraphs, as in a long pipeline.
func groupVariables(vs []variableReport) (groups []variableGroup) {
	type key struct {
		front     string
		taskGraph *ir.TaskGraph
	}
	for _, try := range []struct {
		levels             int
		numbers, taskGraph bool // tell them apart
	}{
		{3, true, true}, {2, true, true}, {1, true, true},
		{2, false, true}, {1, false, true},
		{3, false, false}, {2, false, false}, {1, false, false},
	} {
		of := func(v variableReport) key {
			k := key{front: front(pathText(v.Path), try.levels)}
			if !try.numbers {
				k.front = digits.ReplaceAllString(k.front, "*")
			}
			if try.taskGraph {
				k.taskGraph = v.TaskGraph
			}
			return k
		}
		groups = nil
		for _, some := range grouped(vs, of) {
			path := pathText(some[0].Path)
			if len(some) > 1 {
				path = of(some[0]).front + "/…"
			}
			groups = append(groups, variableGroup{path, some})
		}
		if len(groups) <= maxGroups {
			break
		}
	}
	return groups
}

// grouped puts what has the same key together, in the order in which keys come first.
func grouped[T any, K comparable](all []T, key func(T) K) (groups [][]T) {
	index := map[K]int{}
	for _, x := range all {
		k := key(x)
		i, ok := index[k]
		if !ok {
			i = len(groups)
			index[k], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], x)
	}
	return groups
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}
