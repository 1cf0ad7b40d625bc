// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla_test

import (
	"log"

	"github.com/easyparallel/epl"
	_ "github.com/easyparallel/epl/xla"
)

// A program that imports this package runs on GPUs if it asks for them, here or by GOMLX_BACKEND=xla:cuda.
func Example() {
	env, err := epl.Init(nil, epl.WithInner("xla:cuda"))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
}
