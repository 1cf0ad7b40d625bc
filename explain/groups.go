package explain

import (
	"regexp"
	"slices"
	"strings"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
)

// maxGroups is how many groups of variables are few enough to read.
const maxGroups = 30

// variableGroup is some variables whose paths begin alike.
type variableGroup struct {
	path       string // that of the variable if it is alone, else what all have in common and "/…"
	taskGraphs []*ir.TaskGraph
	variables  int
	bytes      int64

	trainable, gradients, updated int
}

func (g *variableGroup) taskGraphText() string {
	if n := len(g.taskGraphs); n > 1 {
		return words.Count(n, "TaskGraph")
	}
	return plain(g.taskGraphs[0].Title())
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
func groupVariables(vs []variableReport) []variableGroup {
	var groups []variableGroup
	for _, try := range []struct {
		levels             int
		numbers, taskGraph bool // tell them apart
	}{
		{3, true, true}, {2, true, true}, {1, true, true},
		{2, false, true}, {1, false, true},
		{3, false, false}, {2, false, false}, {1, false, false},
	} {
		groups = groupBy(vs, func(v variableReport) variableKey {
			k := variableKey{front: front(pathText(v.Path), try.levels)}
			if !try.numbers {
				k.front = digits.ReplaceAllString(k.front, "*")
			}
			if try.taskGraph {
				k.taskGraph = v.TaskGraph
			}
			return k
		})
		if len(groups) <= maxGroups {
			break
		}
	}
	return groups
}

type variableKey struct {
	front     string
	taskGraph *ir.TaskGraph
}

func groupBy(vs []variableReport, key func(variableReport) variableKey) []variableGroup {
	index := map[variableKey]int{}
	var groups []variableGroup
	for _, v := range vs {
		k := key(v)
		i, ok := index[k]
		if !ok {
			i = len(groups)
			index[k] = i
			groups = append(groups, variableGroup{path: pathText(v.Path)})
		}
		g := &groups[i]
		if ok {
			g.path = k.front + "/…"
		}
		if !slices.Contains(g.taskGraphs, v.TaskGraph) {
			g.taskGraphs = append(g.taskGraphs, v.TaskGraph)
		}
		g.variables++
		g.bytes += v.Bytes
		g.trainable += one(v.Trainable)
		g.gradients += one(v.Gradient != nil)
		g.updated += one(v.Update != nil)
	}
	return groups
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}
