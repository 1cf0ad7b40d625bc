// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestEveryFileNamesItsLicence: a file that is copied elsewhere takes its terms along.
func TestEveryFileNamesItsLicence(t *testing.T) {
	list, err := exec.Command("git", "ls-files", "*.go", "*.s", "*.c").Output()
	if err != nil {
		t.Skipf("this is no checkout by git: %v", err)
	}
	for name := range strings.FieldsSeq(string(list)) {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) || strings.Contains(name, "testdata/") {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if line, _, _ := bytes.Cut(text, []byte("\n")); !bytes.Contains(line, []byte("SPDX-License-Identifier: Apache-2.0")) && !bytes.HasPrefix(line, []byte("// Code generated")) {
			t.Errorf("%s does not begin with the line of its licence: // Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0", name)
		}
	}
}
