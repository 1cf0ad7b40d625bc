// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// promised are the packages whose API stays compatible between versions, as docs/versions.md says. All else may change.
var promised = []string{"", "/cluster", "/config", "/data", "/hf", "/metrics"}

// api.txt has the API of these packages, so that nobody changes it without noticing; -update rewrites it. What changed since a release is for scripts/apidiff.sh to say.
func TestTheAPIIsTheOneOfTheFile(t *testing.T) {
	if testing.Short() {
		t.Skip("it type-checks packages; not with -short")
	}
	var paths []string
	for _, p := range promised {
		paths = append(paths, "github.com/easyparallel/epl"+p)
	}
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedExportFile}, paths...)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			t.Fatal(p.Errors)
		}
		fmt.Fprintf(&b, "package %s\n", p.PkgPath)
		for _, line := range apiOf(p.Types) {
			fmt.Fprintf(&b, "\t%s\n", line)
		}
	}
	const file = "api.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	was, is := strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")
	for _, line := range was {
		if !slices.Contains(is, line) {
			t.Errorf("gone from the API: %s", line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			t.Errorf("new in the API: %s", line)
		}
	}
	if t.Failed() {
		t.Log("if it is meant so: go test . -run TestTheAPI -update, and say it in CHANGELOG.md")
	}
}

// apiOf lists what programs may use of a package: names with their types, fields and methods.
func apiOf(p *types.Package) (lines []string) {
	short := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	}
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		switch o := o.(type) {
		case *types.TypeName:
			kind := "type " + name
			if o.IsAlias() {
				lines = append(lines, kind+" = "+types.TypeString(types.Unalias(o.Type()), short))
				continue
			}
			switch u := o.Type().Underlying().(type) {
			case *types.Struct:
				lines = append(lines, kind+" struct")
				for f := range u.Fields() {
					if f.Exported() {
						lines = append(lines, kind+" struct, "+f.Name()+" "+types.TypeString(f.Type(), short))
					}
				}
			case *types.Interface:
				lines = append(lines, kind+" interface")
				for m := range u.Methods() {
					lines = append(lines, kind+" interface, "+m.Name()+strings.TrimPrefix(types.TypeString(m.Type(), short), "func"))
				}
			default:
				lines = append(lines, kind+" "+types.TypeString(u, short))
			}
			set := types.NewMethodSet(types.NewPointer(o.Type()))
			for m := range set.Methods() {
				if _, isInterface := o.Type().Underlying().(*types.Interface); m.Obj().Exported() && !isInterface {
					lines = append(lines, fmt.Sprintf("method (%s) %s%s", name, m.Obj().Name(), strings.TrimPrefix(types.TypeString(m.Type(), short), "func")))
				}
			}
		case *types.Func:
			lines = append(lines, "func "+name+strings.TrimPrefix(types.TypeString(o.Type(), short), "func"))
		case *types.Const:
			lines = append(lines, "const "+name+" "+types.TypeString(o.Type(), short))
		case *types.Var:
			lines = append(lines, "var "+name+" "+types.TypeString(o.Type(), short))
		}
	}
	return lines
}
