// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/comm"
)

// travelled adds up the values of some ranks as float16.
func travelled(t *testing.T, values [][]float32, prefer float64) []float32 {
	t.Helper()
	world, err := comm.NewInProcess(len(values), comm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer world.Close()
	results := make(chan []float32, len(values))
	for r, x := range values {
		end, err := world.All().Communicator(r, 0)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			h := &halved{ranks: len(values), prefer: prefer}
			half := make([]float16.Float16, len(x))
			i := h.add(travel{from: [][]float32{x}, to: [][]float16.Float16{half}})
			end.Start(h.agree())
			sum := end.Start(comm.Call{Op: comm.AllReduce, Buf: half, Reduction: comm.Sum, Before: func() { h.narrow(i) }})
			out := make([]float32, len(x))
			if err := sum.Wait(); err != nil {
				t.Error(err)
			}
			h.widen(i, out, half, 1)
			results <- out
		}()
	}
	first := <-results
	for range len(values) - 1 {
		<-results
	}
	return first
}

func TestSumsThatTravelAsFloat16NeverOverflow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, ranks := range []int{1, 2, 3, 17} {
		for _, size := range []float64{1e-38, 1e-20, 1e-7, 1, 511, 513, 65504, 1e6, 1e20, 1e37} {
			for _, prefer := range []float64{1, 128, 1 << 40} {
				t.Run(fmt.Sprint(ranks, size, prefer), func(t *testing.T) {
					values := make([][]float32, ranks)
					want := make([]float64, 50)
					for rank := range values {
						values[rank] = make([]float32, len(want))
						for i := range want {
							x := float32(size * (1 - 2*r.Float64())) // some large, some small
							if i%3 == 0 {
								x = float32(size) // all have the largest, so that the sum is as large as can be
							}
							values[rank][i] = x
							want[i] += float64(x)
						}
					}
					for i, x := range travelled(t, values, prefer) {
						if off := math.Abs(float64(x) - want[i]); !(off <= 2e-3*size*float64(ranks)) {
							t.Fatalf("element %d is %g, want %g", i, x, want[i])
						}
					}
				})
			}
		}
	}
}

func TestWhatIsNoNumberTravelsAsThat(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	got := travelled(t, [][]float32{{inf, nan, 3e9, -inf}, {1, 2, 1e9, 4}}, 128)
	if !math.IsInf(float64(got[0]), 1) || !math.IsNaN(float64(got[1])) || math.Abs(float64(got[2])-4e9) > 1e7 || !math.IsInf(float64(got[3]), -1) {
		t.Errorf("%v", got)
	}
	if got := travelled(t, [][]float32{{0, 0}, {0, 0}}, 128); got[0] != 0 || got[1] != 0 {
		t.Errorf("zeros became %v", got)
	}
}
