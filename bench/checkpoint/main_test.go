// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"testing"
)

// The tests start themselves as the command does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"-load", "-copy", "-alone", "--guard"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestItSavesAndWorkersLoad(t *testing.T) {
	j := job{State: 1 << 20, Batch: 2, Devices: 1, Rounds: 1, Dir: t.TempDir(), Workers: []int{1, 2}}
	if got := 12 * depth * j.width() * j.width(); got > 1<<20 || got < 1<<19 {
		t.Errorf("%d bytes of state are not about a MiB", got)
	}
	if err := j.run(); err != nil {
		t.Fatal(err)
	}
}

func TestWorkersCopyToMemory(t *testing.T) {
	args := os.Args
	defer func() { os.Args = args }()
	os.Args = []string{args[0], "-copies", "2", "-state", "100000", "-batch", "2", "-rounds", "1"} // what workers are started with
	if err := (job{Copies: 2}).run(); err != nil {
		t.Fatal(err)
	}
}
