// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cores

// Mine are the cores that the calling thread may run on; nil: that is not known.
func Mine() []int { return nil }

// Bind does nothing: it is called with what Mine knows.
func Bind([]int) error { return nil }
