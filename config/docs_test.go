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
	want := keyTables(defaults(t))
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

// keyTables writes one Markdown table per category.
func keyTables(cfg *Config) string {
	var b strings.Builder
	category := ""
	for _, e := range cfg.Entries() {
		if c, _, _ := strings.Cut(e.Key, "."); c != category {
			category = c
			fmt.Fprintf(&b, "\n### %s\n\n| key | default | values | meaning |\n|---|---|---|---|\n", category)
		}
		name := "`" + e.Key + "`"
		if !e.Original {
			name += " +"
		}
		def := e.Default
		if def == "" {
			def = `""`
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", name, def, strings.TrimPrefix(e.Allowed, "an "), e.Doc)
	}
	b.WriteString("\n")
	return b.String()
}
