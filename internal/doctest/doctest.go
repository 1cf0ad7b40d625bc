// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package doctest checks, for tests of commands, that what documents say of a command is understood by it.
package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	placeholder = regexp.MustCompile(`^([A-Z]+|[a-z])$`) // it stands for a value
	quotedWords = regexp.MustCompile(`'[^']*'`)
)

// Understood checks the command lines that lines finds in the documents of the repository, which are at least so many: parse gets the words of each, with values in place of placeholders.
// That help is asked for is no error. It is called in the folder of a command, two below the root.
func Understood(t *testing.T, fewest int, lines func(page, text string) []string, parse func(words []string) error) {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines(page, string(text)) {
			checked++
			if err := parse(wordsOf(line)); err != nil && !strings.Contains(err.Error(), "help requested") {
				t.Errorf("%s: %s: %v", page, line, err)
			}
		}
	}
	if checked < fewest {
		t.Errorf("only %d command lines were found", checked)
	}
}

// wordsOf are the words of a command line, as a shell would pass them.
func wordsOf(line string) []string {
	words := strings.Fields(quotedWords.ReplaceAllString(line, "quoted"))
	for i, word := range words {
		if placeholder.MatchString(word) {
			words[i] = "1"
		}
	}
	if last := words[len(words)-1]; strings.HasPrefix(last, "--") && last != "--" {
		words = append(words, "1") // a flag is named without its value
	}
	return words
}
