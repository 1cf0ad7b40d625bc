// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

func TestWhatWasNotUsedForLongestLeavesAFullCache(t *testing.T) {
	folder := t.TempDir()
	c, err := NewCache(folder, 700) // each entry has 100 bytes, its checksum and its memory
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range []string{"a", "b"} {
		if err := c.put(key, entry{code: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(c.file(key), old, old); err != nil {
			t.Fatal(err)
		}
	}
	unfinished := filepath.Join(folder, "new-1")
	if err := os.WriteFile(unfinished, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	yesterday := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(unfinished, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	if c.get("a") == nil { // now b was not used for longest
		t.Fatal("an entry is gone before the cache is full")
	}
	if err := c.put("c", entry{code: make([]byte, 100)}); err != nil {
		t.Fatal(err)
	}
	for key, stays := range map[string]bool{"a": true, "b": false, "c": true} {
		if got := c.get(key) != nil; got != stays {
			t.Errorf("%s is there: %v", key, got)
		}
	}
	if _, err := os.Stat(unfinished); err == nil {
		t.Error("what a process left unfinished is still there")
	}
	if err := c.put("d", entry{code: make([]byte, 1000)}); err == nil {
		t.Error("an entry larger than the cache is no error")
	}
}

// Modules are compiled at the same time, and what takes long is said: which of how many, and at the end how long it took.
func TestWhatIsCompiledForLongIsSaid(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{})
	var mu sync.Mutex
	var said []string
	begun := make(chan struct{}, 2)
	log := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, fmt.Sprintf(format, args...))
		if strings.Contains(format, "compiles") {
			begun <- struct{}{}
		}
	}
	both := make(chan struct{})
	see := func(_ *ir.Segment, _ []bool, text string) {
		f.Program(text, pjrttest.Program{Compiled: func() { <-both }}) // it takes until both are said to take long
	}
	all, err := Devices(f.Load(t), Options{Log: log, Compiling: see})
	if err != nil {
		t.Fatal(err)
	}
	defer all[0].Finalize()
	all[0].client.patience = 0
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		p, err := ir.Parse(`program "` + name + `"
main {
  %0 = Parameter() {Name: "w", Shape: float32[3]} -> float32[3] : forward
  %1 = Neg(%0) {} -> float32[3] : forward
  return %1
}
`)
		if err != nil {
			t.Fatal(err)
		}
		x, err := emit.Program(all[0], p)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Finalize()
		wg.Go(func() {
			if err := x.(emit.Late).Ready([]bool{true}); err != nil {
				t.Error(err)
			}
		})
	}
	<-begun
	<-begun
	close(both)
	wg.Wait()
	for _, want := range []string{`compiles program "a"`, `compiles program "b"`, "1 of ", "2 of 2", `compiled program "a" in`, `compiled program "b" in`} {
		if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%q is not said: %q", want, said)
		}
	}
}
