// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command bertlarge measures a training step of BERT-large on a GPU.
//
//	go run ./examples/gpu/bertlarge -backend xla:cuda
package main

import (
	"github.com/easyparallel/epl/examples/internal/bertlarge"
	_ "github.com/easyparallel/epl/xla"
)

func main() { bertlarge.Main() }
