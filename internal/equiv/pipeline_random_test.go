// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math/rand"
	randv2 "math/rand/v2"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl/passes"
)

// randomPasses switches passes on and off.
func randomPasses(r *rand.Rand) string {
	spec := "none"
	for _, p := range passes.Table {
		if !p.Needed && r.Intn(2) == 0 {
			spec += "," + p.Name
		}
	}
	return spec
}

// randomSettings draws what must not change what is learned.
func randomSettings(r *rand.Rand) map[string]any {
	return randomSetting(r).Params()
}

// randomStages is a random program cut into stages: each applies ops of random_ops.go to what it and the stages before
// computed, and has a weight of its own. The loss, outside, is of values of all stages.
func randomStages(seed uint64) (Staged, *Random) {
	rng := randv2.New(randv2.NewPCG(seed, 3))
	r := &Random{Seed: seed, differentiate: true, size: newSizes(rng)}
	r.size.zeros = false
	var dims [][]int
	for range 2 {
		dims = append(dims, r.size.dims(rng, 1+rng.IntN(3)))
	}
	weight := r.size.dims(rng, 1+rng.IntN(2))
	batch := func(step int) (inputs, labels []*tensors.Tensor) {
		rng := randv2.New(randv2.NewPCG(seed, uint64(1000+step)))
		for _, d := range dims {
			inputs = append(inputs, tensors.FromFlatDataAndDimensions(uniform[float32](rng, d), d...))
		}
		indices := make([]int32, 5)
		for i := range indices {
			indices[i] = int32(rng.IntN(16))
		}
		state, err := RNGStateFromSeed(int64(seed) + int64(step))
		if err != nil {
			panic(err)
		}
		return append(inputs, tensors.FromFlatDataAndDimensions(indices, len(indices)), state), nil
	}
	build := func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			g := inputs[0].Graph()
			r.text.Reset()
			p := &pool{Rand: randv2.New(randv2.NewPCG(seed, 2)), r: r, g: g, size: r.size, used: map[int]bool{}, rng: inputs[3]}
			for i, x := range inputs[:3] {
				p.put(fmt.Sprintf("input %d", i), []float64{1, 1, 16}[i], x)
			}
			loss := Scalar(g, dtypes.Float32, 0)
			for i := range stages {
				fmt.Fprintf(&r.text, "stage %d\n", i)
				stage(inputs[0], i, func() {
					w := scope.In("stage_%d", i).VariableWithShape("w", shapes.Make(dtypes.Float32, weight...)).NodeValue(g)
					own := Tanh(Mul(w, ReduceAllMean(inputs[0])))
					loss = Add(loss, ReduceAllMean(own)) // no stage is empty
					p.put("weight", 1, w)
					p.put("own", 1, own)
					for range r.few(2 + p.IntN(8)) {
						p.step()
					}
				})
			}
			for _, v := range p.values { // bfloat16 that passes may round in another way does not count
				if !isFloat(v) || v.coarse || v.Shape().Size() == 0 || p.used[v.id] && p.IntN(4) > 0 {
					continue
				}
				loss = Add(loss, ReduceAllMean(Square(Tanh(ConvertDType(v.Node, dtypes.Float32)))))
			}
			train.AddMainLoss(loss)
			return nil
		}
	}
	return Staged{"random", build, nil, batch}, r
}
