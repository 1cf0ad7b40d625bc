// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// textWidth is where the last column of a table is wrapped.
const textWidth = 118

// table is an aligned table in text. A heading that starts with ">" makes its column flush right.
type table struct {
	head []string
	rows [][]string
}

// row adds cells: int64 are bytes.
func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, x := range cells {
		if n, ok := x.(int64); ok {
			x = bytesText(n)
		}
		row[i] = fmt.Sprint(x)
	}
	t.rows = append(t.rows, row)
}

// write prints the table, indented. Long text in the last column goes on below itself.
func (t *table) write(w *strings.Builder, indent string) {
	width := make([]int, len(t.head))
	head := make([]string, len(t.head))
	for i, h := range t.head {
		head[i] = strings.TrimPrefix(h, ">")
	}
	all := append([][]string{head}, t.rows...)
	for _, r := range all {
		for i, cell := range r {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	last := len(head) - 1
	before := len(indent)
	for _, n := range width[:last] {
		before += n + 2
	}
	for _, r := range all {
		line := indent
		for i, cell := range r {
			space := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			switch right := head[i] != t.head[i]; {
			case i == last && right:
				r[last] = space + cell
			case right:
				line += space + cell + "  "
			case i < last:
				line += cell + space + "  "
			}
		}
		for _, part := range wrap(r[last], max(textWidth-before, 30)) {
			w.WriteString(strings.TrimRight(line+part, " ") + "\n")
			line = strings.Repeat(" ", before)
		}
	}
}

// section prints the table under a heading, if there are rows.
func (t *table) section(w *strings.Builder, heading string) {
	if len(t.rows) > 0 {
		fmt.Fprintf(w, "\n  %s\n", heading)
		t.write(w, "    ")
	}
}

// wrap cuts text into lines of at most width runes, between words.
func wrap(text string, width int) []string {
	if utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// plain quotes text of the user that would spoil a table or a terminal.
func plain(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.TrimSpace(s) != s {
		return strconv.Quote(s)
	}
	return s
}

// dash shows zero as "-", so that numbers that matter stand out.
func dash(n int) string { return orDash(n != 0, strconv.Itoa(n)) }

// orDash shows what there is, or "-".
func orDash(is bool, text string) string {
	if is {
		return text
	}
	return "-"
}
