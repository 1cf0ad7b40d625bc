// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
)

// BenchmarkUnary runs kernels on a block that stays in the fastest cache.
func BenchmarkUnary(b *testing.B) {
	const n = 2048
	a, d := fill[float32](rand.New(rand.NewPCG(1, 2)), n), make([]float32, n)
	for i := range a {
		if !(a[i] < 20 && a[i] > 0) {
			a[i] = 0.3
		}
	}
	for _, op := range []Op{"Neg", "Abs", "Sqrt", "Exp", "Expm1", "Log", "Log1p", "Logistic", "Rsqrt", "Erf", "Tanh", "Cos"} {
		b.Run(string(op), func(b *testing.B) {
			f := Unary(op, dtypes.Float32, 0)
			x := Args{D: at(d), A: at(a), Rows: 1, Cols: n}
			for b.Loop() {
				f(&x)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
		})
	}
}
