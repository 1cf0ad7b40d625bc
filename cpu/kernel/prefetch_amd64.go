// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import "unsafe"

// Prefetch asks for cache lines that will be read soon. It reads nothing, so p may point anywhere.
func Prefetch(p unsafe.Pointer, lines int) { prefetchLines(p, lines) }

//go:noescape
func prefetchLines(p unsafe.Pointer, lines int)
