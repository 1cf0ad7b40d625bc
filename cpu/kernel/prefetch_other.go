// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package kernel

import "unsafe"

// Prefetch asks for cache lines that will be read soon. Here it does nothing.
func Prefetch(unsafe.Pointer, int) {}
