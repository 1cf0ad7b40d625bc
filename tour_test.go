// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"log"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// tourStep is the program that docs/architecture.md follows through EPL: one step of a linear regression.
func tourStep(scope *model.Scope, x, y *Node) *Node {
	w := scope.WithInitializer(initializer.Zero).VariableWithShape("w", shapes.Make(dtypes.Float32, 4, 3))
	var prediction *Node
	epl.With(x, epl.Replicate(1, "model"), func() {
		prediction = MatMul(x, w.NodeValue(x.Graph()))
	})
	loss := ReduceAllMean(Square(Sub(prediction, y)))
	sgd := optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.5)
	epl.Optimizer(sgd).UpdateGraph(scope, x.Graph(), loss)
	return loss
}

func Example_tour() {
	env, err := epl.Init(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	store := model.NewStore()
	exec := model.MustNewExec(env.Backend(), store, tourStep).WithName("step")
	x := [][]float32{{1, 0, 0, 0}, {0, 1, 0, 0}}
	y := [][]float32{{1, 2, 3}, {4, 5, 6}}
	fmt.Println(exec.MustCall1(x, y))
	fmt.Println(exec.MustCall1(x, y))
	// Output:
	// float32(15.17)
	// float32(10.53)
}
