// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !(linux && amd64)

package loop

// Compile makes the loop of a program; here there is none.
func Compile(*Program) *Func { return nil }

func call([]byte, *Args) { panic("epl: internal error: there are no loops on this system") }
