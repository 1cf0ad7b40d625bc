// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cores

import "golang.org/x/sys/unix"

// Mine are the cores that the calling thread may run on; nil: that is not known.
func Mine() (all []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for c, left := 0, set.Count(); left > 0; c++ {
		if set.IsSet(c) {
			all = append(all, c)
			left--
		}
	}
	return all
}

// Bind lets the calling thread run on these cores only. Processes that it starts inherit that.
func Bind(all []int) error {
	var set unix.CPUSet
	for _, c := range all {
		set.Set(c)
	}
	return unix.SchedSetaffinity(0, &set)
}
