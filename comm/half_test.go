// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm_test

import (
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/comm"
)

func TestEveryFloat16SurvivesTheWayToFloat32AndBack(t *testing.T) {
	all := make([]float16.Float16, 1<<16)
	for i := range all {
		all[i] = float16.Float16(i)
	}
	wide := make([]float32, len(all))
	comm.FromFloat16(wide, all)
	back := make([]float16.Float16, len(all))
	comm.ToFloat16(back, wide)
	for i := range all {
		if all[i] != back[i] && !math.IsNaN(float64(wide[i])) {
			t.Fatalf("%#x is %v and comes back as %#x", all[i], wide[i], back[i])
		}
	}
}

func TestSmallNumbersAreNotLostInFloat16(t *testing.T) {
	half := make([]float16.Float16, 3)
	comm.ToFloat16(half, []float32{6e-8, 3e-5, 1e-9})
	wide := make([]float32, 3)
	comm.FromFloat16(wide, half)
	if wide[0] == 0 || math.Abs(float64(wide[1])-3e-5) > 1e-7 || wide[2] != 0 {
		t.Errorf("got %v", wide)
	}
}
