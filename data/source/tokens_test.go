// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package source

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/easyparallel/epl/data"
)

// writeTokens makes a file of tokens.
func writeTokens(t testing.TB, file string, vocabulary int, ids ...int32) {
	t.Helper()
	w, err := NewTokenWriter(file, vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(ids...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func counted(from, n int) (ids []int32) {
	for i := range n {
		ids = append(ids, int32(from+i))
	}
	return ids
}

func window(t *testing.T, x data.Index, i int) (input, label []int32) {
	t.Helper()
	s, err := x.Sample(i, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tensors.MustCopyFlatData[int32](s.Inputs[0]), tensors.MustCopyFlatData[int32](s.Labels[0])
}

func TestWindowsOfTokensAreThoseOfTheFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	writeTokens(t, a, 1<<16, counted(100, 10)...)
	writeTokens(t, b, 1<<17, counted(70000, 7)...)
	x, err := OpenTokens([]string{a, b}, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if x.Len() != 3+2 {
		t.Fatalf("%d windows", x.Len())
	}
	for i, first := range []int{100, 103, 106, 70000, 70003} {
		if input, label := window(t, x, i); !slices.Equal(input, counted(first, 3)) || !slices.Equal(label, counted(first+1, 3)) {
			t.Errorf("window %d: %v, %v", i, input, label)
		}
	}
	if _, err := x.Sample(5, nil); err == nil {
		t.Error("there is a window too many")
	}
	memory, err := TokensOf(counted(100, 10), 3)
	if err != nil || memory.Len() != 3 {
		t.Fatal(err)
	}
	if input, label := window(t, memory, 2); !slices.Equal(input, counted(106, 3)) || !slices.Equal(label, counted(107, 3)) {
		t.Errorf("%v, %v", input, label)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if _, err := x.Sample(0, nil); err == nil {
		t.Error("a closed file was read")
	}
}

// Files of more than a block, and what is wrong in one: the others can still be read.
func TestDamagedTokensAreFoundWhereTheyAre(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	ids := make([]int32, 2*tokensBlock+5)
	for i := range ids {
		ids[i] = int32(i % 1000)
	}
	writeTokens(t, file, 1000, ids...)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bad := slices.Clone(good)
	bad[tokensHeader+2*tokensBlock+77]++
	write(bad)
	x, err := OpenTokens([]string{file}, 16)
	if err != nil {
		t.Fatal(err)
	}
	if input, _ := window(t, x, 3); !slices.Equal(input, ids[48:64]) {
		t.Error(input)
	}
	_, err = x.Sample(tokensBlock/16+4, nil)
	if want := file + ": bytes 524320 to 1048608 are damaged"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	// Another program cuts the file off while it is mapped.
	last := x.Len() - 1
	if err := os.Truncate(file, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Sample(last, nil); err == nil || !strings.Contains(err.Error(), file+": byte ") {
		t.Errorf("got %v", err)
	}
	_ = x.Close()

	for want, b := range map[string][]byte{
		"byte 0: it has 5 bytes":             good[:5],
		"byte 0: it is no file of tokens":    slices.Concat([]byte("x"), good[1:]),
		"byte 0: its header is damaged":      slices.Concat(good[:16], []byte{9}, good[17:]),
		"byte 1048621: it ends here":         good[:len(good)-9],
		"it was cut off, or something was a": append(slices.Clone(good), 0),
	} {
		write(b)
		if _, err := OpenTokens([]string{file}, 16); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := OpenTokens(nil, 3); err == nil {
		t.Error("no files")
	}
	write(good)
	if _, err := OpenTokens([]string{file}, len(ids)); err == nil || !strings.Contains(err.Error(), "are no window of") {
		t.Error(err)
	}
}

func TestTokensBeyondTheVocabularyMakeNoFile(t *testing.T) {
	for vocabulary, id := range map[int]int32{100: 1 << 16, 1 << 20: -1} {
		file := filepath.Join(t.TempDir(), "x")
		w, err := NewTokenWriter(file, vocabulary)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(1, 2, id); err == nil || !strings.Contains(err.Error(), "token 2 is ") {
			t.Error(err)
		}
		if err := w.Close(); err == nil {
			t.Error("it was closed")
		}
		if left, _ := filepath.Glob(file + "*"); len(left) > 0 {
			t.Error(left)
		}
	}
}

// Training goes on in the middle of files without reading what it has seen.
func TestTokensGoOnAnywhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	writeTokens(t, file, 1000, counted(0, 101)...)
	dataset := func(skip int) (all []int32) {
		x, err := OpenTokens([]string{file}, 5)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		ds, err := data.FromIndex("tokens", x, data.IndexOptions{Batch: 3, Epochs: 2, Shuffle: true, Seed: 4})
		if err != nil {
			t.Fatal(err)
		}
		if err := ds.Skip(skip); err != nil {
			t.Fatal(err)
		}
		for b, err := range ds.Iter() {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, tensors.MustCopyFlatData[int32](b.Inputs[0])...)
		}
		return all
	}
	all := dataset(0)
	for n := range 13 {
		if got := dataset(n); !slices.Equal(got, all[n*15:]) {
			t.Errorf("from %d on: %d tokens", n, len(got))
		}
	}
}

// Whatever a file is, it is an error or can be read.
func FuzzTokens(f *testing.F) {
	file := filepath.Join(f.TempDir(), "x")
	writeTokens(f, file, 1000, counted(0, 20)...)
	good, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		file := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		x, err := OpenTokens([]string{file}, 4)
		if err != nil {
			if !strings.Contains(err.Error(), file) {
				t.Error(err)
			}
			return
		}
		defer x.Close()
		for i := range x.Len() {
			if _, err := x.Sample(i, nil); err != nil && !strings.Contains(err.Error(), file) {
				t.Error(err)
			}
		}
	})
}
