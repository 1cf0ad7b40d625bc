// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A text on which workers agree may begin with what people know of it, one thing a line: its name, a tab, and its value. Names that
// repeat are numbered by their order. What follows the first line without a tab is compared line by line.

// most is how many differences are told.
const most = 3

// differences tells people where the texts of two workers differ: first in what is named, then in the lines that follow.
func differences(texts [2]string, workers [2]int) string {
	var names [2][]string
	var values [2]map[string]string
	for i := range texts {
		names[i], values[i], texts[i] = named(texts[i])
	}
	type difference struct {
		at   int // where it is in the text of its worker
		text string
	}
	var all []difference
	for i, name := range names[0] {
		x := values[0][name]
		y, there := values[1][name]
		switch {
		case !there:
			all = append(all, difference{i, fmt.Sprintf("only worker %d has %s: %s", workers[0], name, excerpt(x, ""))})
		case x != y:
			all = append(all, difference{i, fmt.Sprintf("%s is %s on worker %d and %s on worker %d", name, excerpt(x, y), workers[0], excerpt(y, x), workers[1])})
		}
	}
	for i, name := range names[1] {
		if _, there := values[0][name]; !there {
			all = append(all, difference{i, fmt.Sprintf("only worker %d has %s: %s", workers[1], name, excerpt(values[1][name], ""))})
		}
	}
	slices.SortStableFunc(all, func(x, y difference) int { return cmp.Compare(x.at, y.at) })
	var told []string
	for _, d := range all {
		told = append(told, d.text)
	}
	switch {
	case len(told) > most:
		told = append(told[:most], fmt.Sprintf("and %d more", len(told)-most))
	case len(told) == 0 && len(names[0]) == 0:
		return compareTexts(texts[0], texts[1])
	case len(told) == 0 && !slices.Equal(names[0], names[1]):
		return "they have the same, in another order"
	case len(told) == 0:
		return "the model is the same, but not what is made of it: " + compareTexts(texts[0], texts[1])
	}
	return strings.Join(told, "; ")
}

// named takes the lines with a name off a text.
func named(text string) (names []string, values map[string]string, rest string) {
	values = map[string]string{}
	for {
		line, after, more := strings.Cut(text, "\n")
		name, value, ok := strings.Cut(line, "\t")
		if !ok {
			return names, values, text
		}
		unique := name
		for n := 2; ; n++ {
			if _, taken := values[unique]; !taken {
				break
			}
			unique = fmt.Sprintf("%s (number %d)", name, n)
		}
		names = append(names, unique)
		values[unique] = value
		if text = after; !more {
			return names, values, ""
		}
	}
}
