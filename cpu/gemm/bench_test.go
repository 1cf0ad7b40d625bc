// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/pool"
)

// shape is a product of a benchmark: C[m,n] = A[m,k]·B[k,n], and which operands are transposed in memory.
type shape struct {
	name    string
	m, n, k int
	ta, tb  bool
}

// layer are the three products of a dense layer in training: forward, gradient by weights, gradient by input.
func layer(name string, batch, in, out int) []shape {
	return []shape{
		{name + "/forward", batch, out, in, false, false},
		{name + "/weights", in, out, batch, true, false},
		{name + "/input", batch, in, out, false, true},
	}
}

func (s shape) product() *Product {
	p := &Product{DType: dtypes.Float32, M: s.m, N: s.n, K: s.k, A: Matrix{s.k, 1}, B: Matrix{s.n, 1}, CRow: s.n}
	if s.ta {
		p.A = Matrix{1, s.m}
	}
	if s.tb {
		p.B = Matrix{1, s.k}
	}
	return p
}

// attention are the products of attention straight from [batch, time, heads, dim], forward and gradients.
func attention(batch, time, heads, dim int) map[string]*Product {
	row := heads * dim
	each := func(a, b, c [2]int) []Batch {
		return []Batch{{batch, a[0], b[0], c[0]}, {heads, a[1], b[1], c[1]}}
	}
	x, s := [2]int{time * row, dim}, [2]int{heads * time * time, time * time}
	return map[string]*Product{
		"scores":  {DType: dtypes.Float32, M: time, N: time, K: dim, A: Matrix{row, 1}, B: Matrix{1, row}, CRow: time, Batch: each(x, x, s)},
		"values":  {DType: dtypes.Float32, M: time, N: dim, K: time, A: Matrix{time, 1}, B: Matrix{row, 1}, CRow: row, Batch: each(s, x, x)},
		"queries": {DType: dtypes.Float32, M: time, N: dim, K: time, A: Matrix{1, time}, B: Matrix{row, 1}, CRow: row, Batch: each(s, x, x)},
	}
}

// BenchmarkProducts runs the products of models on one thread and on two. Compare with BenchmarkMicrokernel.
func BenchmarkProducts(b *testing.B) {
	var shapes []shape
	for _, w := range []int{64, 128, 256} {
		shapes = append(shapes, layer(fmt.Sprintf("gpt%d/qkv", w), 512, w, 3*w)...)
		shapes = append(shapes, layer(fmt.Sprintf("gpt%d/mlp", w), 512, w, 4*w)...)
	}
	shapes = append(shapes, layer("mlp32/square", 32, 4096, 4096)...)
	shapes = append(shapes, layer("mlp64", 64, 1024, 4096)...)
	shapes = append(shapes, layer("mlp256", 256, 1024, 4096)...)
	shapes = append(shapes, layer("mlp256/square", 256, 4096, 4096)...)
	shapes = append(shapes, layer("bert/square", 512, 768, 768)...)
	shapes = append(shapes, layer("bert/mlp", 512, 768, 3072)...)
	for _, threads := range []int{1, 2} {
		team := pool.New(threads)
		for _, s := range shapes {
			measure(b, fmt.Sprintf("threads%d/%s", threads, s.name), team, s.product())
		}
		for _, x := range [][4]int{{8, 64, 4, 32}, {8, 64, 8, 32}, {8, 64, 4, 64}} {
			for name, p := range attention(x[0], x[1], x[2], x[3]) {
				measure(b, fmt.Sprintf("threads%d/attention%dx%dx%dx%d/%s", threads, x[0], x[1], x[2], x[3], name), team, p)
			}
		}
		team.Close()
	}
}

// BenchmarkHalf runs products of bfloat16, and the same of float32.
func BenchmarkHalf(b *testing.B) {
	team := pool.New(2)
	defer team.Close()
	for _, s := range append(layer("gpt256/mlp", 512, 256, 1024), layer("bert/mlp", 512, 768, 3072)...) {
		for _, in := range []dtypes.DType{dtypes.Float32, dtypes.BFloat16} {
			p := s.product()
			p.In = in
			measure(b, fmt.Sprintf("%s/%s", s.name, in), team, p)
		}
	}
}

// BenchmarkMicrokernel is the most that a product could reach: the microkernel on panels that stay in the fastest cache.
func BenchmarkMicrokernel(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads%d", threads), func(b *testing.B) {
			team := pool.New(threads)
			defer team.Close()
			k, r := &micro32, rand.New(rand.NewPCG(1, 2))
			x, y := numbers[float32](r, k.rows*depth), numbers[float32](r, k.cols*depth)
			c := make([]float32, threads*k.rows*k.cols)
			const times = 1000
			for b.Loop() {
				err := team.Run(4*threads, func(w *pool.Worker, _ int) {
					for range times {
						k.tile(depth, panel{ptr(x), 1, k.rows}, panel{ptr(y), 1, k.cols}, ptr(c[w.Index*k.rows*k.cols:]), k.cols, k.rows, k.cols, false, asking{})
					}
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			flops := float64(2 * 4 * threads * times * k.rows * k.cols * depth)
			b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

func measure(b *testing.B, name string, team *pool.Pool, p *Product) {
	b.Run(name, func(b *testing.B) {
		r := rand.New(rand.NewPCG(1, 2))
		n := p.Entries()
		x, y, z := numbers[float32](r, n*p.M*p.K), numbers[float32](r, n*p.K*p.N), numbers[float32](r, n*p.M*p.N)
		if p.In == dtypes.BFloat16 { // two of them in the memory of a float32
			for i := range x {
				x[i] = math.Float32frombits(0x3f813f80)
			}
			for i := range y {
				y[i] = math.Float32frombits(0x3f803f82)
			}
		}
		for b.Loop() {
			if err := p.Run(team, ptr(x), ptr(y), ptr(z), nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(p.Flops())*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	})
}
