// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo_test

import (
	"fmt"
	"log"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/hlo"
	"github.com/easyparallel/epl/ir"
)

// A step that doubles a variable in its place.
func ExampleModule() {
	p, err := ir.Parse(`program "step"
input %0
main {
  %0 = Parameter() {Name: "x", Shape: float32[2]} -> float32[2] : forward
  %1 = Add(%0, %0) -> float32[2] : forward
  return %1
}
`)
	if err != nil {
		log.Fatal(err)
	}
	text, err := hlo.Module(emit.Whole(p), hlo.Options{Alias: map[int]int{0: 0}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(text)
	// Output:
	// module @m_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
	//   func.func public @main(%v0: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<2xf32>) {
	//     %v1 = "stablehlo.add"(%v0, %v0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
	//     return %v1 : tensor<2xf32>
	//   }
	// }
}
