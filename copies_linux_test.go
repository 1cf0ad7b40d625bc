// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/internal/hostmem"
	"github.com/easyparallel/epl/state"
	"github.com/easyparallel/epl/worker"
)

// The first copy is refused if the machine has too little memory for those of all its workers, and nothing is taken of it; with enough it is made.
func TestCopiesAreRefusedWhereMemoryIsShort(t *testing.T) {
	pool, err := hostmem.New("test", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	files, err := hostmem.Open(pool.Name)
	if err != nil {
		t.Fatal(err)
	}
	piece := state.Piece{Path: "/w", DType: dtypes.Uint8, Shape: []int{8 << 20}, Region: state.Whole([]int{8 << 20})}
	free, known := int64(63<<20), true
	k := &copier{job: &worker.Job{Worker: 1}, memory: &memory{}, files: files, copyPlan: copyPlan{mine: []state.Piece{piece}},
		places: []copyPlace{{"a", "one"}, {"b", "two"}, {"b", "two"}, {"c", "two"}, {"c", "two"}}, available: func() (int64, bool) { return free, known }}
	err = k.makeSlot()
	if err == nil || !strings.Contains(err.Error(), "epl: recovery.copies needs about 64 MB of memory on this machine, for two copies of what its workers have (4), and 63 MB are available; leave recovery.copies unset") {
		t.Errorf("%v", err)
	}
	if size, err := files[0].Size(); err != nil || size != 0 || k.slots[0] != nil {
		t.Errorf("%d bytes were taken, %v", size, err)
	}
	for _, enough := range []struct {
		free  int64
		known bool
	}{{65 << 20, true}, {0, false}} {
		free, known, k.slots[0] = enough.free, enough.known, nil
		if err := k.makeSlot(); err != nil {
			t.Errorf("%+v: %v", enough, err)
		}
		if size, err := files[0].Size(); err != nil || size < 8<<20 {
			t.Errorf("%+v: %d bytes were taken, %v", enough, size, err)
		}
	}
	if free, ok := hostmem.Available(); !ok || free <= 0 {
		t.Errorf("%d bytes are available here, %v", free, ok)
	}
}
