// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Wrap breaks the lines of a message between words if it goes to a terminal.
func Wrap(to io.Writer, message string) string {
	if !isTerminal(to) {
		return message
	}
	lines := strings.Split(message, "\n")
	for i, line := range lines {
		lines[i] = wrap(line, widthOf(to), 0, 2)
	}
	return strings.Join(lines, "\n")
}

// wrap breaks a text between words so that it fits into rows of a terminal. The first row begins at column start, since
// something stands before it; the others are indented. A word that is longer than a row, such as a path, stays whole.
// Without a width the text is one row.
func wrap(text string, width, start, indent int) string {
	if width <= indent {
		return text
	}
	var b strings.Builder
	at := start
	for i, word := range strings.Split(text, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > width && at > indent:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
