// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package gemm

import "github.com/easyparallel/epl/cpu/isa"

func use(isa.Level) {} // for tests: there is one level
