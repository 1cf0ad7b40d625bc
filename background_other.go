// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package epl

// background is for systems whose threads have priorities of their own.
func background() {}
