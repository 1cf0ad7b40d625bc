package launch

import (
	"strings"
	"unicode/utf8"
)

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
