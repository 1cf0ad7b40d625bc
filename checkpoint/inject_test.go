// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// failing fails all writes after so many saves.
type failing struct{ saves, from int }

func (f *failing) Save() { f.saves++ }
func (f *failing) Write(part func()) error {
	if f.saves < f.from {
		return nil
	}
	part()
	return syscall.ENOSPC
}

func TestInjectedFaultsFailAWriteAfterHalfOfItAndNothingElse(t *testing.T) {
	m := newMemory()
	f := &failing{from: 2}
	fs := WithFaults(m, f)
	if err := fs.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	write := func(name string) (int, error) {
		w, err := fs.Create(filepath.Join("d", name))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		return w.Write([]byte("12345678"))
	}
	if n, err := write("a.safetensors"); n != 8 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := write("b.safetensors"); n != 4 || !errors.Is(err, syscall.ENOSPC) || string(m.files["d/b.safetensors"].data) != "1234" {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := write("manifest"); !errors.Is(err, syscall.ENOSPC) || f.saves != 2 {
		t.Errorf("%v after %d saves", err, f.saves)
	}
}
