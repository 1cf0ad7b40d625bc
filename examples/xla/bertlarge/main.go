// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command bertlarge measures a training step of BERT-large on GoMLX's own XLA backend: with EPL (-backend gomlx-xla:cuda -modes amp), and without
// (-backend xla:cuda -modes bfloat16,float32).
//
//	cd examples/xla && go build -o bertlarge/bertlarge ./bertlarge && bertlarge/bertlarge -backend xla:cuda -modes bfloat16
package main

import (
	_ "github.com/gomlx/go-xla/compute/xla"

	"github.com/easyparallel/epl/examples/internal/bertlarge"
)

func main() { bertlarge.Main() }
