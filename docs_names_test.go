// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/config"
)

// named are the pages that translate other libraries' terms, or say how to begin: every key and Go name in them is looked up.
var named = []string{"docs/coming-from.md", "docs/install.md", "docs/faq.md", "docs/doctor.md"}

var (
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	keySpan   = regexp.MustCompile(`^([a-z_]+\.[a-z_0-9]+)(?:=(\S+))?$`)
	nameSpan  = regexp.MustCompile(`^(epl|env)\.([A-Z]\w*)`)
	oneOf     = regexp.MustCompile(`"([^"]*)"`)
	translate = regexp.MustCompile(`^\|.*\| EPL \|$`)
)

// spans are the pieces of code in the text of a page; of a table that translates, those of its last column.
func spans(text string) (all []string) {
	translates := false
	for line := range strings.Lines(prose(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			translates = false
		} else if translate.MatchString(line) {
			translates = true
		}
		if translates {
			line = strings.TrimSuffix(line, "|")
			line = line[strings.LastIndexByte(line, '|')+1:]
		}
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			all = append(all, m[1])
		}
	}
	return all
}

func TestKeysAndNamesInDocumentsExist(t *testing.T) {
	pages := documents(t)
	names := exported(t)
	keys, values, found := 0, 0, 0
	for _, page := range named {
		for _, span := range spans(pages[page]) {
			if m := nameSpan.FindStringSubmatch(span); m != nil {
				found++
				if !names[m[1]+"."+m[2]] {
					t.Errorf("%s: there is no %s", page, span)
				}
				continue
			}
			m := keySpan.FindStringSubmatch(span)
			if m == nil || strings.HasPrefix(m[1], "kernel.") || strings.HasSuffix(m[1], ".mod") {
				continue
			}
			keys++
			entry, err := new(config.Config).Entry(m[1])
			if err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			var allowed []string
			for _, v := range oneOf.FindAllStringSubmatch(entry.Allowed, -1) {
				allowed = append(allowed, v[1])
			}
			if entry.Type == "bool" {
				allowed = []string{"true", "false"}
			}
			if m[2] != "" {
				values++
				if len(allowed) > 0 && !slices.Contains(allowed, m[2]) {
					t.Errorf("%s: %s allows %q, not %s", page, m[1], allowed, m[2])
				}
			}
		}
	}
	if keys < 40 || values < 20 || found < 20 {
		t.Errorf("only %d keys, %d values and %d names were looked up", keys, values, found)
	}
}

// exported are the names of the root package as documents write them: "epl.Init", and methods of an Env "env.Close".
func exported(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names["epl."+d.Name.Name] = true
				} else if p, ok := d.Recv.List[0].Type.(*ast.StarExpr); ok && p.X.(*ast.Ident).Name == "Env" {
					names["env."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names["epl."+s.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range s.Names {
							names["epl."+n.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}
