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

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table, indented. Long text in the last column goes on below itself.
func (t *table) write(w *strings.Builder, indent string) {
	right := make([]bool, len(t.head))
	head := make([]string, len(t.head))
	width := make([]int, len(t.head))
	for i, h := range t.head {
		head[i], right[i] = strings.TrimPrefix(h, ">"), strings.HasPrefix(h, ">")
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
		for i, cell := range r[:last] {
			space := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if right[i] {
				line += space + cell + "  "
			} else {
				line += cell + space + "  "
			}
		}
		cell := r[last]
		if right[last] {
			cell = strings.Repeat(" ", width[last]-utf8.RuneCountInString(cell)) + cell
		}
		for _, part := range wrap(cell, max(textWidth-before, 30)) {
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
func dash(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
