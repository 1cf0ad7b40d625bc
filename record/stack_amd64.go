// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

// returns fills in where the calls on the stack return to, beginning with that of its caller, and how many they are; -1 if they cannot be found. Functions that were inlined have none.
//
//go:noescape
func returns(pcs *[64]uintptr) (n int)
