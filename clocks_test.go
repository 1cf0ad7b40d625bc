// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// byTheClock are the packages in which somebody waits for somebody. A wall clock may be set, by a person or by NTP, so they
// must count on times that time.Now gave and that still have the monotonic reading: one that was made from a number, or read
// from a file, has none, and its comparisons jump with the clock.
var byTheClock = []string{"wire", "rendezvous", "comm", "comm/internal/transport", "comm/inproc", "comm/shm", "comm/tcp", "comm/mpi", "comm/hybrid", "launch", "serve", "worker", "internal/checked"}

// ofTime are the functions of package time that give a time without that reading, withoutReading the methods that drop it.
var (
	ofTime         = map[string]bool{"Unix": true, "UnixMilli": true, "UnixMicro": true, "Date": true, "Parse": true}
	withoutReading = map[string]bool{"Unix": true, "UnixNano": true, "UnixMilli": true, "UnixMicro": true, "ModTime": true, "UTC": true, "Local": true}
)

func TestWhoWaitsDoesNotLookAtTheWallClock(t *testing.T) {
	for _, folder := range byTheClock {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files, %v", folder, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if f, ok := call.Fun.(*ast.SelectorExpr); ok {
					of, _ := f.X.(*ast.Ident)
					if withoutReading[f.Sel.Name] || of != nil && of.Name == "time" && ofTime[f.Sel.Name] {
						t.Errorf("%s: %s has no monotonic reading: a clock that is set would end a wait, or never end it", set.Position(n.Pos()), f.Sel.Name)
					}
				}
				return true
			})
		}
	}
}
