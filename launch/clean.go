// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean makes a text safe to show: what a worker or another machine says may change how its own words look, but must not
// move the cursor, ring, rename the window or talk to the terminal, where the words of others are.
//
// Escape sequences of terminals are dropped; with colour, those that set colours and the like stay. Other control
// characters are made visible, as ^H or \x9b, but for the tab. Bytes that are no UTF-8 stay, unless an 8-bit terminal
// would take them for a control character.
func clean(text string, colour bool) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r == utf8.RuneError || unicode.IsControl(r) }) {
		return text
	}
	var b strings.Builder
	for text != "" {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == '\x1b':
			n = escapeEnd(text)
			if colour && isColour(text[:n]) {
				b.WriteString(text[:n])
			}
		case r == '\t':
			b.WriteByte('\t')
		case r < ' ' || r == 0x7f:
			b.WriteByte('^')
			b.WriteByte(text[0] ^ 0x40)
		case n == 1 && r == utf8.RuneError && text[0] < 0xa0:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r >= 0x80 && r < 0xa0:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}

// cleanLines is clean for a text of several lines.
func cleanLines(text string) []string {
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	for i, line := range lines {
		lines[i] = clean(strings.TrimSuffix(line, "\r"), false)
	}
	return lines
}

// isColour tells whether an escape sequence only changes the look of the text. Not all that end with an m do: others, with
// a ? or > in front of their numbers, switch modes of the keyboard.
func isColour(sequence string) bool {
	numbers, csi := strings.CutPrefix(sequence, "\x1b[")
	numbers, m := strings.CutSuffix(numbers, "m")
	return csi && m && strings.Trim(numbers, "0123456789;:") == ""
}

// escapeEnd returns where the sequence ends that a text begins with, after ECMA-48. One that is broken off by a character
// that cannot be in it ends before that.
func escapeEnd(text string) int {
	in := func(i int, low, high byte) bool { return i < len(text) && text[i] >= low && text[i] <= high }
	i := 1
	switch {
	case in(i, '[', '['): // parameters, then a letter
		for i++; in(i, 0x30, 0x3f); i++ {
		}
	case i < len(text) && strings.IndexByte("]PX^_", text[i]) >= 0: // a title, link or command, until a bell or ESC \
		end := strings.IndexAny(text[i:], "\a\x1b")
		if end < 0 {
			return len(text)
		}
		if i += end; text[i] == '\a' {
			return i + 1
		}
		if in(i+1, '\\', '\\') {
			return i + 2
		}
		return i
	}
	for ; in(i, 0x20, 0x2f); i++ {
	}
	if in(i, 0x30, 0x7e) {
		i++
	}
	return i
}
