// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the generated part of docs/configuration.md")

const (
	docsFile       = "../docs/configuration.md"
	beginGenerated = "<!-- begin generated -->\n"
	endGenerated   = "<!-- end generated -->\n"
)

func TestTheGuideListsEveryKeyAsTheTableDoes(t *testing.T) {
	content, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(content), beginGenerated)
	listed, after, ends := strings.Cut(rest, endGenerated)
	if !begins || !ends {
		t.Fatalf("%s lacks the lines %q and %q", docsFile, beginGenerated, endGenerated)
	}
	want := keyTable(defaults(t))
	if *update {
		if err := os.WriteFile(docsFile, []byte(before+beginGenerated+want+endGenerated+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if listed != want {
		t.Errorf("%s is not what the table says; run: go test ./config -run Guide -update", docsFile)
	}
}

// keyTable writes a Markdown table of all keys. The default of a switch says what its values are.
func keyTable(cfg *Config) string {
	var b strings.Builder
	b.WriteString("| key | default | values | meaning |\n|---|---|---|---|\n")
	for _, e := range cfg.Entries() {
		name := "`" + e.Key + "`"
		if !e.Original {
			name += " +"
		}
		def := e.Default
		if def == "" {
			def = `""`
		}
		values := strings.Replace(strings.TrimPrefix(e.Allowed, "an "), "integer of at least ", "≥ ", 1)
		if e.Type == "bool" {
			values = ""
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", name, def, values, e.Doc)
	}
	return b.String()
}
