// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestOnlyColoursOfAWorkerReachTheTerminal(t *testing.T) {
	for name, test := range map[string]struct{ in, coloured, plain string }{
		"text":                           {"naïve 数\tx", "naïve 数\tx", "naïve 数\tx"},
		"colours":                        {"\x1b[31mred\x1b[0m \x1b[38;2;1:2:3mx\x1b[m", "\x1b[31mred\x1b[0m \x1b[38;2;1:2:3mx\x1b[m", "red x"},
		"the cursor":                     {"\x1b[2K\x1b[1Aup\x1b7\x1b[6n!", "up!", "up!"},
		"a title":                        {"a\x1b]0;title\ab\x1b]2;title\x1b\\c", "abc", "abc"},
		"a link":                         {"\x1b]8;;http://x\x1b\\here\x1b]8;;\x1b\\", "here", "here"},
		"commands to the terminal":       {"a\x1bP$q\"p\x1b\\b\x1b_x\x1b\\c\x1b^x\ad\x1bXx\x1b\\e", "abcde", "abcde"},
		"a character set":                {"a\x1b(0b\x1b[1 qc", "abc", "abc"},
		"modes of the keyboard":          {"\x1b[>4;1mx\x1b[?4m", "x", "x"},
		"a sequence that is broken off":  {"\x1b[3", "", ""},
		"one in which another begins":    {"\x1b[3\x1b[31mx\x1b]0;\x1b[1Ay", "\x1b[31mxy", "xy"},
		"an escape at the end":           {"x\x1b", "x", "x"},
		"backspace":                      {"done\b\b\b\bfail", "done^H^H^H^Hfail", "done^H^H^H^Hfail"},
		"other control characters":       {"\a\v\f\x00\x7f", "^G^K^L^@^?", "^G^K^L^@^?"},
		"C1 as UTF-8":                    {"\u009b31m\u0085\u0090", `\x9b31m\x85\x90`, `\x9b31m\x85\x90`},
		"C1 as bytes":                    {"\x9b2Jx", `\x9b2Jx`, `\x9b2Jx`},
		"other bytes that are not UTF-8": {"caf\xe9", "caf\xe9", "caf\xe9"},
	} {
		if got := clean(test.in, true); got != test.coloured {
			t.Errorf("%s, with colour: %q, want %q", name, got, test.coloured)
		}
		if got := clean(test.in, false); got != test.plain {
			t.Errorf("%s, without: %q, want %q", name, got, test.plain)
		}
	}
}

func FuzzWhateverAWorkerPrintsIsSafeToShow(f *testing.F) {
	for _, seed := range []string{"x", "\x1b[31m", "\x1b[3\x1b[1A", "\xc2\x1b[m\x9b", "\x1b]0;\x1b\x1b[1A", "\u009b"} {
		f.Add(seed)
	}
	colours := regexp.MustCompile("\x1b\\[[0-9;:]*m")
	f.Fuzz(func(t *testing.T, in string) {
		in = strings.ReplaceAll(in, "\n", "")
		for _, got := range []string{clean(in, false), colours.ReplaceAllString(clean(in, true), "")} {
			for i, r := range got {
				_, n := utf8.DecodeRuneInString(got[i:])
				if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 || n == 1 && got[i] >= 0x80 && got[i] < 0xa0 {
					t.Fatalf("%q became %q", in, got)
				}
			}
		}
	})
}
