// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// String names a worker, for people; and its ranks, if they are not the one with the worker's own number.
func (w Worker) String() string {
	ranks := ""
	if w.Ranks != "" && w.Ranks != fmt.Sprint("rank ", w.Index) {
		ranks = ", " + w.Ranks
	}
	return fmt.Sprintf("worker %d (%s, pid %d%s)", w.Index, w.Host, w.PID, ranks)
}

// Doing says what a worker did last, for people: "training, after step 7". Busy and step are those of its status, the steps before a checkpoint that it loaded included.
func Doing(busy string, step int64) string {
	if busy == "" {
		busy = "training"
	}
	if step == 0 {
		return busy + ", before the end of the first step"
	}
	return fmt.Sprintf("%s, after step %d", busy, step)
}

// theWorkers is "worker 2" or "workers 1, 2".
func theWorkers(indices []int) string {
	if len(indices) == 1 {
		return fmt.Sprintf("worker %d", indices[0])
	}
	return "workers " + strings.Trim(strings.ReplaceAll(fmt.Sprint(indices), " ", ", "), "[]")
}

// inner returns an error's text to stand inside another sentence.
func inner(text string) string {
	return strings.ReplaceAll(strings.TrimPrefix(text, "epl: "), ": epl: ", ": ")
}

// seconds shows a duration to people.
func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }

// compareFacts returns what is wrong if not all workers have the same facts, else "".
func compareFacts(facts [][]Fact) string {
	values := make([]map[string]string, len(facts))
	var names []string
	known := map[string]bool{}
	for i, list := range facts {
		values[i] = map[string]string{}
		for _, f := range list {
			values[i][f.Name] = fmt.Sprintf("%q", f.Value)
			if !known[f.Name] {
				known[f.Name] = true
				names = append(names, f.Name)
			}
		}
	}
	for _, name := range names {
		var order []string
		workers := map[string][]int{}
		for i := range facts {
			value, ok := values[i][name]
			if !ok {
				value = "nothing"
			}
			if workers[value] == nil {
				order = append(order, value)
			}
			workers[value] = append(workers[value], i)
		}
		if len(order) == 1 {
			continue
		}
		var parts []string
		for _, value := range order {
			parts = append(parts, fmt.Sprintf("%s on %s", value, theWorkers(workers[value])))
		}
		return fmt.Sprintf("epl: the workers do not agree on %s: it is %s; make it equal on all workers", name, strings.Join(parts, ", "))
	}
	return ""
}

// compareTexts tells people where two texts differ first.
func compareTexts(a, b string) string {
	for line := 1; ; line++ {
		x, restA, moreA := strings.Cut(a, "\n")
		y, restB, moreB := strings.Cut(b, "\n")
		switch {
		case x != y:
			return fmt.Sprintf("line %d is %s and %s", line, excerpt(x, y), excerpt(y, x))
		case moreA != moreB:
			return fmt.Sprintf("one ends after line %d, where the other goes on", line)
		case !moreA:
			return "what was compared of them is equal"
		}
		a, b = restA, restB
	}
}

// excerpt quotes a line, and of a long one the part where it begins to differ from another.
func excerpt(line, other string) string {
	const before, limit = 60, 200
	same := 0
	for same < min(len(line), len(other)) && line[same] == other[same] {
		same++
	}
	begin, end := 0, len(line)
	if same > limit-before {
		begin = same - before
	}
	end = min(end, begin+limit)
	for begin > 0 && !utf8.RuneStart(line[begin]) {
		begin--
	}
	for end < len(line) && !utf8.RuneStart(line[end]) {
		end++
	}
	quoted := fmt.Sprintf("%q", line[begin:end])
	if begin > 0 {
		quoted = "…" + quoted
	}
	if end < len(line) {
		quoted += "…"
	}
	return quoted
}
