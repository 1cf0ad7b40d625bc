// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/ir"
)

// Random is a program drawn at random: a graph-building function, and inputs for it. The same seed gives the same
// program with the same inputs. It mixes the families of ops of random_ops.go over a pool of values; about half of the
// programs end in a loss and its gradients.
//
// Values stay small, so that a tolerance means something. What jumps when its operand changes by a rounding error
// (comparisons, conversions to integers, …) is applied only to values that no pass may change.
type Random struct {
	Seed uint64
	// Results describe the outputs, once the program has been built.
	Results []Result

	size          sizes
	differentiate bool // it ends in gradients
	most          int  // families of ops in each stage; 0: as many as are drawn
	text          strings.Builder
}

// Result describes an output of a random program.
type Result struct {
	Name string
	// Coarse results went through bfloat16: a rounding error of float32 may have become one of bfloat16.
	Coarse bool
}

// NewRandom returns the program of a seed.
func NewRandom(seed uint64) *Random {
	rng := rand.New(rand.NewPCG(seed, 0))
	r := &Random{Seed: seed, differentiate: rng.IntN(2) == 0, size: newSizes(rng)}
	if r.differentiate {
		r.size.zeros = false // GoMLX fails to differentiate some ops without elements
	}
	return r
}

// few is how many of so many families of ops are applied.
func (r *Random) few(n int) int {
	if r.most == 0 {
		return n
	}
	return min(n, r.most)
}

// String describes the program, line by line, once it has been built.
func (r *Random) String() string {
	return fmt.Sprintf("random program %d:\n%s", r.Seed, r.text.String())
}

// Run builds the program on a backend, runs it and returns its outputs: all are float32, float64 or int32.
func (r *Random) Run(backend compute.Backend) ([]*tensors.Tensor, error) {
	exec, err := NewExec(backend, r.Build)
	if err != nil {
		return nil, err
	}
	defer exec.Finalize()
	args := r.arguments()
	in := make([]any, len(args))
	for i, t := range args {
		in[i] = t
	}
	return exec.WithName(fmt.Sprintf("random %d", r.Seed)).Call(in...)
}

// Record returns the program as EPL records it.
func (r *Random) Record() (*ir.Program, error) {
	backend, recorder := NewRecorder(nil)
	defer backend.Finalize()
	exec, err := NewExec(backend, r.Build)
	if err != nil {
		return nil, err
	}
	var in []shapes.Shape
	for _, t := range r.arguments() {
		in = append(in, t.Shape())
	}
	if _, err := exec.WithName(fmt.Sprintf("random %d", r.Seed)).Compile(in...); err != nil {
		return nil, err
	}
	return recorder.Programs[0], nil
}

// arguments draws the inputs: float32 values of various shapes, one of float64, indices, and the state of a random
// number generator.
func (r *Random) arguments() []*tensors.Tensor {
	rng := rand.New(rand.NewPCG(r.Seed, 1))
	var args []*tensors.Tensor
	for range 2 + rng.IntN(2) {
		dims := r.size.dims(rng, 1+rng.IntN(3))
		args = append(args, tensors.FromFlatDataAndDimensions(uniform[float32](rng, dims), dims...))
	}
	dims := r.size.dims(rng, rng.IntN(3))
	args = append(args, tensors.FromFlatDataAndDimensions(uniform[float64](rng, dims), dims...))
	indices := make([]int32, 5)
	for i := range indices {
		indices[i] = int32(rng.IntN(16))
	}
	state, err := RNGStateFromSeed(int64(r.Seed))
	if err != nil {
		panic(err)
	}
	return append(args, tensors.FromFlatDataAndDimensions(indices, len(indices)), state)
}

func uniform[T float32 | float64](rng *rand.Rand, dims []int) []T {
	n := 1
	for _, d := range dims {
		n *= d
	}
	flat := make([]T, n)
	for i := range flat {
		flat[i] = T(rng.Float32()*2 - 1)
	}
	return flat
}

// sizes draws the sizes of axes. A program has a favourite, so that axes meet others of their size; now and then a
// size is one, or does not divide, or is zero.
type sizes struct {
	favourite int
	zeros     bool
}

var someSizes = []int{1, 1, 2, 3, 5, 8, 9, 12, 17}

func newSizes(rng *rand.Rand) sizes {
	return sizes{favourite: []int{3, 4, 8, 9, 12}[rng.IntN(5)], zeros: rng.IntN(12) == 0}
}

func (s sizes) dim(rng *rand.Rand) int {
	switch {
	case s.zeros && rng.IntN(6) == 0:
		return 0
	case rng.IntN(2) == 0:
		return s.favourite
	}
	return someSizes[rng.IntN(len(someSizes))]
}

func (s sizes) dims(rng *rand.Rand, rank int) []int {
	dims := make([]int, rank)
	for i := range dims {
		dims[i] = s.dim(rng)
	}
	return dims
}

// Build is the graph-building function.
func (r *Random) Build(inputs []*Node) []*Node {
	r.text.Reset()
	r.Results = nil
	p := &pool{Rand: rand.New(rand.NewPCG(r.Seed, 2)), r: r, g: inputs[0].Graph(), size: r.size, used: map[int]bool{}}
	n := len(inputs) - 1
	p.rng = inputs[n]
	var floats []*Node
	for i, x := range inputs[:n] {
		bound := 1.0
		if x.DType().IsInt() {
			bound = 16
		} else {
			floats = append(floats, x)
		}
		p.put(fmt.Sprintf("input %d", i), bound, x)
	}
	p.grow()
	results := p.results()
	if r.differentiate {
		results = append(results, p.gradients(floats, p.IntN(4) == 0)...)
	}
	outputs := make([]*Node, len(results))
	for i, v := range results {
		fmt.Fprintf(&r.text, "result %d: v%d\n", i, v.id)
		r.Results = append(r.Results, Result{Name: fmt.Sprintf("v%d", v.id), Coarse: v.coarse})
		outputs[i] = plainDType(v.Node)
	}
	return outputs
}

// grow applies families of ops, sometimes in scopes of their own.
func (p *pool) grow() {
	scopes := max(0, p.IntN(5)-2) // mostly none
	steps := 4 + p.IntN(20)
	some := func() {
		for range steps / max(1, scopes) {
			p.step()
		}
	}
	if scopes == 0 {
		some()
	}
	for i := range scopes {
		fmt.Fprintf(&p.r.text, "scope %d\n", i)
		epl.With(p.g, epl.Replicate(1, fmt.Sprintf("scope %d", i)), some)
	}
}

// step applies one family of ops. One that finds no operands to its taste leaves the pool as it is.
func (p *pool) step() {
	total := 0
	for _, f := range families {
		total += f.weight
	}
	at := p.IntN(total)
	for _, f := range families {
		if at -= f.weight; at < 0 {
			f.apply(p)
			return
		}
	}
}

// results are what nobody used, and one more value.
func (p *pool) results() []value {
	extra := p.IntN(len(p.values))
	var results []value
	for i, v := range p.values {
		if !p.used[i] || i == extra {
			results = append(results, v)
		}
	}
	return results
}

// gradients puts a loss on top of the program and differentiates it. With coarse, bfloat16 counts in the loss.
func (p *pool) gradients(inputs []*Node, coarse bool) []value {
	loss := Scalar(p.g, dtypes.Float32, 0)
	var from []value
	for _, v := range p.values {
		if !isFloat(v) || v.Shape().Size() == 0 || v.coarse && !coarse || p.used[v.id] && p.IntN(4) > 0 {
			continue
		}
		x := Tanh(ConvertDType(v.Node, dtypes.Float32))
		if p.IntN(2) == 0 {
			x = Mul(x, x)
		}
		loss = Add(loss, ReduceAllMean(x))
		from = append(from, v)
	}
	if len(from) == 0 {
		return nil
	}
	l := p.putRounded("loss", float64(len(from)), loss, from...)
	results := []value{l}
	for i, g := range Gradient(loss, inputs...) {
		results = append(results, p.putRounded(fmt.Sprintf("gradient of input %d", i), 100, g, l))
	}
	return results
}

// plainDType converts to a type that tensors compare in.
func plainDType(n *Node) *Node {
	switch n.DType() {
	case dtypes.BFloat16:
		return ConvertDType(n, dtypes.Float32)
	case dtypes.Bool, dtypes.Int64:
		return ConvertDType(n, dtypes.Int32)
	}
	return n
}
