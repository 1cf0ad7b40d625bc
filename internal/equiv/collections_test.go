// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"math"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
)

// collectedStep runs one training step whose results are what values makes of the input.
func collectedStep(t *testing.T, env *epl.Env, values func(x *Node) []*Node) [][]float64 {
	t.Helper()
	return collectedFrom(t, env, Dataset{Regression(4, 4)}, values)
}

// collectedFrom is the same with the first batches of a dataset.
func collectedFrom(t *testing.T, env *epl.Env, ds train.Dataset, values func(x *Node) []*Node) [][]float64 {
	t.Helper()
	exec := model.MustNewExec(env.Backend(), newStore(), func(scope *model.Scope, x, y *Node) []*Node {
		out := values(x)
		loss := ReduceAllMean(Square(Sub(layers.Dense(scope.In("out"), x, true, 1), y)))
		epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), loss)
		return out
	})
	for batch, err := range env.Dataset(ds).Iter() {
		if err != nil {
			t.Fatal(err)
		}
		results, err := exec.Call(batch.Inputs[0], batch.Labels[0])
		if err != nil {
			t.Fatalf("%+v", err)
		}
		var all [][]float64
		for _, r := range results {
			all = append(all, numbers(r))
		}
		return all
	}
	return nil
}

// Each instance has the sum of the squares of its batch.
func sumsOfSquares(instances int) (sum float64) {
	for i := range instances {
		in, _ := Regression(4, 4)(i)
		for _, x := range numbers(in[0]) {
			sum += x * x
		}
	}
	return sum
}

func TestEqualExpressionsAreMergedAsTheirOwnCollectionsSay(t *testing.T) {
	got := collectedStep(t, newCluster(t, 2, 2, nil), func(x *Node) []*Node {
		plain, sum, again, mean := ReduceAllSum(Square(x)), ReduceAllSum(Square(x)), ReduceAllSum(Square(x)), ReduceAllSum(Square(x))
		epl.AddToCollection(epl.GlobalSum, sum, again)
		epl.AddToCollection(epl.LocalMean, mean)
		return []*Node{plain, sum, again, mean}
	})
	all := sumsOfSquares(4)
	for i, want := range []float64{all / 4, all, all, all / 4} {
		if math.Abs(got[i][0]-want) > 1e-5*want {
			t.Errorf("output %d is %v, want %v", i, got[i][0], want)
		}
	}
}

func TestEqualExpressionsMayBeConcatenatedLocallyAndGlobally(t *testing.T) {
	got := collectedStep(t, newCluster(t, 2, 2, nil), func(x *Node) []*Node {
		global, local, neither := Square(x), Square(x), Square(x)
		epl.AddToCollection(epl.GlobalConcat, global)
		epl.AddToCollection(epl.LocalConcat, local)
		return []*Node{global, local, neither}
	})
	for i, want := range []int{4 * 16, 4 * 16, 16} {
		if len(got[i]) != want {
			t.Errorf("output %d has %d elements, want %d", i, len(got[i]), want)
		}
	}
}

// A transpose that moves nothing is dropped, unless what it gives is merged in another way than what it reads.
func TestATransposeThatDoesNothingIsMergedAsItsOwnCollectionSays(t *testing.T) {
	got := collectedStep(t, newCluster(t, 2, 2, nil), func(x *Node) []*Node {
		plain := ReduceSum(Square(x), 0)
		sum := TransposeAllAxes(plain, 0)
		epl.AddToCollection(epl.GlobalSum, sum)
		return []*Node{plain, sum}
	})
	for i, x := range got[0] {
		if math.Abs(4*x-got[1][i]) > 1e-5*math.Abs(x) {
			t.Errorf("the mean of element %d is %v, the sum over 4 instances %v", i, x, got[1][i])
		}
	}
}

func TestAnInstanceWeightMayBeMergedAsAResult(t *testing.T) {
	got := collectedStep(t, newCluster(t, 2, 2, nil), func(x *Node) []*Node {
		weight := ReduceAllSum(Square(x))
		epl.AddToCollection(epl.InstanceWeight, weight)
		epl.AddToCollection(epl.GlobalSum, weight)
		return []*Node{weight}
	})
	if want := sumsOfSquares(4); math.Abs(got[0][0]-want) > 1e-5*want {
		t.Errorf("the weights add up to %v, want %v", got[0][0], want)
	}
}
