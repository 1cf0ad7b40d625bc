// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"
)

func TestTablesAreAlignedAndWrapTheirLastColumn(t *testing.T) {
	table := table{head: []string{"name", ">number", "why"}}
	table.row("a", "1", "short")
	table.row("größer", "1000", strings.Repeat("many words ", 10))
	var got strings.Builder
	table.write(&got, "  ")
	want := `  name    number  why
  a            1  short
  größer    1000  many words many words many words many words many words many words many words many words many words
                  many words
`
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}

func TestNamesThatWouldSpoilATerminalAreQuoted(t *testing.T) {
	for in, want := range map[string]string{"/layer_0/wéights": "/layer_0/wéights", "a\nb": `"a\nb"`, "\x1b[2J": `"\x1b[2J"`, " ": `" "`} {
		if got := plain(in); got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
	}
}
