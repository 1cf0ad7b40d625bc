// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package doctor

import "golang.org/x/sys/unix"

func fileSystemSize(path string) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0, err
	}
	return int64(stat.Blocks) * stat.Bsize, nil
}

// staUnsync is STA_UNSYNC of <sys/timex.h>: nobody keeps the clock right.
const staUnsync = 0x40

func clockSynced() (synchronised, known bool) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return false, false
	}
	return t.Status&staUnsync == 0, true
}
