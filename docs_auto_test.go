// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// choices are what examples/auto chooses; its test makes the files.
func choices(t *testing.T, made map[string]string) {
	t.Helper()
	files, err := filepath.Glob("examples/auto/testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("examples/auto has no golden files: ", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		made["choice "+strings.TrimSuffix(filepath.Base(file), ".txt")] = fenced("text", string(text))
	}
}
