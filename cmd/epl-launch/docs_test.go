// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/easyparallel/epl/internal/doctest"
)

var (
	commandLine = regexp.MustCompile("(?m)(?:^|[ `])epl-launch +(-[^\n`#|>;]*)")
	flagSpan    = regexp.MustCompile("`(--[a-z_]+(?:[ =][^`]*)?)`")
)

// Command lines of epl-launch in documents, and flags in the last column of the tables of docs/coming-from.md, are understood.
func TestFlagsInDocumentsExist(t *testing.T) {
	doctest.Understood(t, 30, func(page, text string) (lines []string) {
		for _, m := range commandLine.FindAllStringSubmatch(text, -1) {
			lines = append(lines, m[1])
		}
		if filepath.Base(page) == "coming-from.md" {
			for line := range strings.Lines(text) {
				cell := strings.TrimSuffix(strings.TrimSpace(line), "|")
				for _, m := range flagSpan.FindAllStringSubmatch(cell[strings.LastIndexByte(cell, '|')+1:], -1) {
					lines = append(lines, m[1])
				}
			}
		}
		return lines
	}, func(words []string) error {
		status := 0
		if err := newCommand(nil, nil, &status).Flags().Parse(words); err != nil && !strings.Contains(err.Error(), "flag: --version") {
			return err
		}
		return nil
	})
}
