// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cpu

// preferHuge does nothing: huge pages are asked for on Linux only.
func preferHuge([]byte) {}
