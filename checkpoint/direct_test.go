// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/state"
)

// A file has the bytes that were written, whatever their lengths, and wherever in memory they begin.
func TestLongWritesGoPastTheCacheAndArriveWhole(t *testing.T) {
	data := make([]byte, 3*staged+page)
	rand.NewChaCha8([32]byte{1}).Read(data)
	for i, lengths := range [][]int{
		{2 * staged},
		{direct, 5, direct, staged + 1, 0, direct - 1, page, 2*staged + 7},
		{1, 2*staged + page, 2 * staged},
	} {
		for _, skip := range []int{0, 8, page - 1} {
			for _, cached := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d from %d, cached %v", i, skip, cached), func(t *testing.T) {
					name := filepath.Join(t.TempDir(), "file")
					w, err := OS.Create(name)
					if err != nil {
						t.Fatal(err)
					}
					w.(*directFile).cached = cached
					var want []byte
					for _, n := range lengths {
						b := data[skip : skip+n]
						if got, err := w.Write(b); err != nil || got != n {
							t.Fatalf("%d of %d bytes were written, %v", got, n, err)
						}
						want = append(want, b...)
					}
					if err := w.Sync(); err != nil {
						t.Fatal(err)
					}
					if err := w.Close(); err != nil {
						t.Fatal(err)
					}
					got, err := os.ReadFile(name)
					if err != nil || !bytes.Equal(got, want) {
						t.Fatalf("the file has %d bytes, and not the %d that were written, %v", len(got), len(want), err)
					}
				})
			}
		}
	}
}

// A file that cannot be written says so, also past the cache.
func TestAWriteThatFailsSaysHowMuchWasWritten(t *testing.T) {
	f, err := os.Open(os.DevNull) // for reading
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := (&directFile{file: f}).Write(make([]byte, 2*direct)); err == nil || n != 0 {
		t.Errorf("%d bytes were written to a file that is open for reading, %v", n, err)
	}
}

// Whoever gives bytes hears when they are not needed any more, one chunk after the other, and before the file is synced.
func TestBytesAreGivenBackWhenTheyAreWritten(t *testing.T) {
	var order []string
	f := newMemory()
	f.fault = func(_ int, op, _ string) error {
		if op == "write" || op == "sync" {
			order = append(order, op)
		}
		return nil
	}
	var chunks []Chunk
	for _, path := range []string{"/a", "/b"} {
		p := state.Piece{Path: path, DType: dtypes.Uint8, Shape: []int{3}, Region: state.Whole([]int{3})}
		chunks = append(chunks, Chunk{Piece: p, Bytes: []byte{1, 2, 3}, Written: func() { order = append(order, path) }})
	}
	if _, err := Write(f, "/d/x", 0, chunks); err != nil {
		t.Fatal(err)
	}
	if want := []string{"write", "write", "/a", "write", "/b", "sync"}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
}
