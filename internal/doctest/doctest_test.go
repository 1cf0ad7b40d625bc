// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package doctest

import (
	"slices"
	"testing"
)

func TestACommandLineOfADocumentHasValuesInPlaceOfPlaceholders(t *testing.T) {
	for line, want := range map[string][]string{
		"plan -n N ./model --set 'a b'": {"plan", "-n", "1", "./model", "--set", "quoted"},
		"--num_workers n --hosts":       {"--num_workers", "1", "--hosts", "1"},
		"drill --":                      {"drill", "--"},
	} {
		if got := wordsOf(line); !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", line, got, want)
		}
	}
}
