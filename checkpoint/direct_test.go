package checkpoint

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
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
