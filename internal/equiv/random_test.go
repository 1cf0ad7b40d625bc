// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
)

const usualSeeds = 120

var (
	seedCount = flag.Int("equiv.seeds", usualSeeds, "how many random programs to compare")
	firstSeed = flag.Uint64("equiv.seed", 1, "the seed of the first random program")
)

// seeds are those of the random programs of a test run.
func seeds() []uint64 {
	r := make([]uint64, *seedCount)
	for i := range r {
		r[i] = *firstSeed + uint64(i)
	}
	return r
}

// variant is a way to run programs on EPL.
type variant struct {
	passes  string
	exact   bool // results must be those of the plain backend bit for bit
	backend compute.Backend
}

// optional are the passes that can be switched on and off.
func optional() []passes.Pass {
	return slices.DeleteFunc(slices.Clone(passes.Table), func(p passes.Pass) bool { return p.Needed })
}

func variants(t *testing.T) []variant {
	vs := []variant{{passes: "none", exact: true}, {passes: "all"}}
	for _, p := range optional() {
		vs = append(vs, variant{passes: "none," + p.Name, exact: p.Exact})
	}
	for i := range vs {
		vs[i].backend = newEnv(t, vs[i].passes).Backend()
	}
	return vs
}

func TestRandomProgramsGiveTheResultsOfThePlainBackendUnderEveryPass(t *testing.T) {
	plain := Plain()
	defer plain.Finalize()
	vs := variants(t)
	for _, seed := range seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := NewRandom(seed)
			want, err := r.Run(plain)
			if err != nil {
				t.Fatalf("plain GoMLX: %+v\n%s", err, r)
			}
			for _, v := range vs {
				got, err := r.Run(v.backend)
				if err == nil {
					err = r.compare(want, got, v.exact)
				}
				if err != nil {
					t.Errorf("passes %q: %+v\n%s", v.passes, err, r)
				}
			}
		})
	}
}

// Tolerances for what passes may change: |x-y| ≤ tolerance·(1+|x|).
const (
	tolerance       = 1e-4
	coarseTolerance = 3e-2
)

func (r *Random) compare(want, got []*tensors.Tensor, exact bool) error {
	if len(want) != len(got) {
		return fmt.Errorf("%d results, not %d", len(got), len(want))
	}
	for i, result := range r.Results {
		if !want[i].Shape().Equal(got[i].Shape()) {
			return fmt.Errorf("result %d, %s, is %s, not %s", i, result.Name, got[i].Shape(), want[i].Shape())
		}
		limit := tolerance
		if result.Coarse {
			limit = coarseTolerance
		}
		x, y := numbers(want[i]), numbers(got[i])
		for j := range x {
			same := math.Float64bits(x[j]) == math.Float64bits(y[j])
			if !same && (exact || !(math.Abs(x[j]-y[j]) <= limit*(1+math.Abs(x[j])))) {
				return fmt.Errorf("result %d, %s, element %d is %v, not %v", i, result.Name, j, y[j], x[j])
			}
		}
	}
	return nil
}

func TestTheRandomProgramsOfASeedAreAlwaysTheSame(t *testing.T) {
	for seed := range uint64(5) {
		a, b := NewRandom(seed), NewRandom(seed)
		p, err := a.Record()
		if err != nil {
			t.Fatal(err)
		}
		q, err := b.Record()
		if err != nil {
			t.Fatal(err)
		}
		if a.String() != b.String() || p.String() != q.String() {
			t.Errorf("two programs of seed %d differ:\n%s\n%s", seed, a, b)
		}
	}
}

// A generator that draws nothing of interest would prove nothing.
func TestTheRandomProgramsGiveEveryPassSomethingToDo(t *testing.T) {
	changes := map[string]int{}
	ops := map[ir.OpType]int{}
	for _, seed := range seeds() {
		p, err := NewRandom(seed).Record()
		if err != nil {
			t.Fatalf("seed %d: %+v", seed, err)
		}
		for _, op := range p.Main.Ops {
			ops[op.Type()]++
		}
		for _, pass := range optional() {
			n, err := pass.Run(p.Clone(), passes.Options{})
			if err != nil {
				t.Fatal(err)
			}
			changes[pass.Name] += n
		}
	}
	t.Logf("changes: %v", changes)
	t.Logf("operations: %v", ops)
	for _, pass := range optional() {
		// empty has models of its own, with tensors without elements, and so have those for XLA, in mixed precision.
		if changes[pass.Name] < len(seeds())/4 && pass.Name != "empty" && !pass.XLA {
			t.Errorf("pass %q changed %d things in %d programs", pass.Name, changes[pass.Name], len(seeds()))
		}
	}
	for _, want := range []ir.OpType{ir.OpDotGeneral, ir.OpTranspose, ir.OpReduceSum, ir.OpReduceMax, ir.OpReshape, ir.OpSlice,
		ir.OpConcatenate, ir.OpPad, ir.OpGather, ir.OpScatterSum, ir.OpFusedSoftmax, ir.OpFusedLayerNorm, ir.OpFusedGelu,
		ir.OpFusedDense, ir.OpWhere, ir.OpConvertDType, ir.OpIota, ir.OpReduceWindow, ir.OpSort, ir.OpWhile, ir.OpIf,
		ir.OpRNGBitGenerator, ir.OpBroadcastInDim, ir.OpReverse} {
		if ops[want] == 0 {
			t.Errorf("no program has a %s", want)
		}
	}
}
