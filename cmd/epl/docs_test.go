// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/easyparallel/epl/internal/doctest"
)

var commandLine = regexp.MustCompile("(?m)(?:^|[ `/])epl +([a-z][^\n`#|>;&]*)")

// Command lines of epl in code of documents are understood: the subcommand is there, with the flags.
func TestCommandsInDocumentsExist(t *testing.T) {
	doctest.Understood(t, 40, func(_, text string) (lines []string) {
		for _, code := range codeOf(text) {
			for _, m := range commandLine.FindAllStringSubmatch(code, -1) {
				lines = append(lines, m[1])
			}
		}
		return lines
	}, func(words []string) error {
		cmd, rest, err := newRootCommand().Find(words)
		switch {
		case err != nil:
			return err
		case cmd.Name() == "epl":
			return errors.New("there is no such command")
		}
		return cmd.ParseFlags(rest)
	})
}

// codeOf are the spans of code, and the blocks of commands, of a document.
func codeOf(text string) (all []string) {
	for i, part := range strings.Split(text, "\n```") {
		if i%2 == 1 {
			if language, code, _ := strings.Cut(part, "\n"); language == "sh" || language == "bash" {
				all = append(all, code)
			}
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(part, -1) {
			all = append(all, m[1])
		}
	}
	return all
}
