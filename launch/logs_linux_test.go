// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"syscall"
	"testing"
)

func TestALogOnAFullDiskIsSaid(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	if err := syscall.Mount("epl", directory, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("a small disk cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(directory, syscall.MNT_DETACH) })
	incomplete(t, directory)
}
