// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

// pause lets the other thread of a physical core have it for some ten nanoseconds.
//
//go:noescape
func pause()
