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
)

// randomSplit draws TaskGraphs, instances and a schedule for a model.
func randomSplit(r *rand.Rand, m Parted) splitPlan {
	p := splitPlan{replicas: 1 + r.Intn(2), micro: 1 + r.Intn(4), colocate: m.Colocated || r.Intn(3) == 0}
	n := m.Least + r.Intn(m.Most-m.Least+1)
	k := 2 + r.Intn(4)
	for len(p.parts) < n {
		if !p.colocate {
			k = 1 + r.Intn(4)
		}
		p.parts = append(p.parts, []int{k, k, -k}[r.Intn(3)])
	}
	if m.Colocated { // the default strategy cannot be split
		p.parts = []int{-k, k}
	}
	if !p.colocate {
		p.schedule = strategies[r.Intn(4)]
	}
	return p
}

// randomPins lets some weights of a model that is one split TaskGraph be sharded along any dim that is large enough.
func randomPins(r *rand.Rand, run *Run, p splitPlan) (pins []pin) {
	if len(p.parts) != 1 || p.parts[0] < 2 {
		return nil
	}
	for v := range run.Store.IterVariables() {
		if !v.Trainable || v.Shape().Rank() == 0 || v.Name() == "unread" || r.Intn(2) > 0 {
			continue
		}
		if dim := r.Intn(v.Shape().Rank()); v.Shape().Dimensions[dim] >= p.parts[0] {
			pins = append(pins, pin{v.Path(), dim})
		}
	}
	return pins
}

// randomParts is a random program in parts: each applies ops of random_ops.go to what it and the parts before computed, and
// has weights of its own that may be sharded. The loss, outside, is of values of all parts.
func randomParts(seed uint64) (Parted, *Random) {
	rng := randv2.New(randv2.NewPCG(seed, 4))
	r := &Random{Seed: seed, differentiate: true, size: newSizes(rng)}
	r.size.zeros = false
	var dims, weights [][]int
	for range 2 {
		dims = append(dims, r.size.dims(rng, 1+rng.IntN(3)))
		weights = append(weights, r.size.dims(rng, 1+rng.IntN(3)))
	}
	dims[0][0], weights[0][0] = 5+rng.IntN(4), 5+rng.IntN(4) // for so many devices
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
	build := func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			g := inputs[0].Graph()
			r.text.Reset()
			p := &pool{Rand: randv2.New(randv2.NewPCG(seed, 5)), r: r, g: g, size: r.size, used: map[int]bool{}, rng: inputs[3]}
			for i, x := range inputs[:3] {
				p.put(fmt.Sprintf("input %d", i), []float64{1, 1, 16}[i], x)
			}
			loss := Scalar(g, dtypes.Float32, 0)
			for i := range s {
				fmt.Fprintf(&r.text, "part %d\n", i)
				s.part(inputs[0], i, func() {
					scope := scope.In("part_%d", i)
					for j, d := range weights {
						w := scope.VariableWithShape(fmt.Sprintf("w%d", j), shapes.Make(dtypes.Float32, d...)).NodeValue(g)
						own := Tanh(Mul(w, ReduceAllMean(inputs[0])))
						loss = Add(loss, ReduceAllMean(own)) // no part is empty
						p.put("weight", 1, w)
						p.put("own", 1, own)
					}
					for range r.few(4 + p.IntN(12)) {
						p.step()
					}
				})
			}
			for _, v := range p.values {
				if !isFloat(v) || v.coarse || v.Shape().Size() == 0 || p.used[v.id] && p.IntN(4) > 0 {
					continue
				}
				loss = Add(loss, ReduceAllMean(Square(Tanh(ConvertDType(v.Node, dtypes.Float32)))))
			}
			train.AddMainLoss(loss)
			return nil
		}
	}
	return Parted{Name: "random", Least: 1, Most: 3, PerInstance: true, Build: build, Batch: batch}, r
}
