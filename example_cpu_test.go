// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"log"

	. "github.com/gomlx/gomlx/core/graph"

	"github.com/easyparallel/epl"
)

// GoMLX's pure-Go backend runs programs op by op: compare with it when in doubt about EPL's engine for CPUs, the default.
func ExampleWithInner_pureGo() {
	env, err := epl.Init(nil, epl.WithInner("go"))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	softmax := MustNewExec(env.Backend(), func(x *Node) *Node { return Softmax(x, -1) })
	fmt.Println(softmax.MustCall([]float32{1, 1})[0].Value())
	// Output:
	// [0.5 0.5]
}
