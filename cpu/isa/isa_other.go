// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package isa

// Best is the highest level that this CPU has.
func Best() Level { return Portable }
