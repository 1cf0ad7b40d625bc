// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package kernel

import "github.com/easyparallel/epl/cpu/isa"

var current isa.Level

func use(isa.Level) { fillTables() }
