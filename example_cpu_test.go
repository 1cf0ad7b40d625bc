package epl_test

import (
	"fmt"
	"log"

	. "github.com/gomlx/gomlx/core/graph"

	"github.com/easyparallel/epl"
)

// EPL's own engine runs programs on CPUs: ops are fused, and vectorised.
func ExampleWithInner_cpu() {
	env, err := epl.Init(nil, epl.WithInner("cpu"))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	softmax := MustNewExec(env.Backend(), func(x *Node) *Node { return Softmax(x, -1) })
	fmt.Println(softmax.MustCall([]float32{1, 1})[0].Value())
	// Output:
	// [0.5 0.5]
}
