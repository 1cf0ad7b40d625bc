// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl/exec/local"
)

// commonMemory is how much common memory this process has mapped.
func commonMemory(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip("nobody tells what memory is mapped")
	}
	return strings.Count(string(maps), "memfd:epl-common")
}

// Model replicas have one copy of a weight. One that somebody reads gets memory of its own, and common memory again some steps later. Nothing is left when it is finalized.
func TestModelReplicasHaveOneCopyOfAWeight(t *testing.T) {
	const size = 20000
	x, runner, _ := shardedStep(t, size, true)
	w, err := runner.BufferFromFlatData(0, make([]float32, size), shapes.Make(dtypes.Float32, size))
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	step := func() {
		t.Helper()
		outs, err := x.Execute([]compute.Buffer{ones(t, runner, size), w}, []bool{true, true}, 0)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		w, steps = outs[0], steps+1
		r, flat, _ := weight(t, runner, w, size)
		defer r.Done()
		for i, v := range flat {
			if v != float32(-2*steps) {
				t.Fatalf("after %d steps element %d is %v", steps, i, v)
			}
		}
	}
	must := func(want int) {
		t.Helper()
		if n := commonMemory(t); n != want {
			t.Fatalf("after %d steps %d pieces of common memory are mapped, want %d", steps, n, want)
		}
	}
	must(0)
	step()
	must(1)
	step()
	must(1)
	r, old, _ := weight(t, runner, w, size)
	step()
	if old[0] != -4 || old[size-1] != -4 {
		t.Errorf("a weight that somebody reads changes: %v, %v", old[0], old[size-1])
	}
	must(1) // it is still read
	r.Done()
	for steps < 18 {
		step()
	}
	must(0)
	step()
	must(1)
	r, old, _ = weight(t, runner, w, size)
	for steps < 60 { // it is read for long, and so there are both
		step()
	}
	must(2)
	if old[0] != -38 {
		t.Errorf("a weight that somebody reads changes: %v", old[0])
	}
	r.Done()
	if err := w.Finalize(); err != nil {
		t.Fatal(err)
	}
	x.Finalize() // waits for what is freed later
	runner.Finalize()
	must(0)
}

// A step that fails leaves no common memory.
func TestAStepThatFailsLeavesNoCommonMemory(t *testing.T) {
	const size = 20000
	for failing := 1; failing <= 2; failing++ {
		x, runner, _ := shardedStep(t, size, true)
		w, err := runner.BufferFromFlatData(0, make([]float32, size), shapes.Make(dtypes.Float32, size))
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= failing; n++ {
			data := ones(t, runner, size)
			if n == failing {
				data = noData(t, runner, size)
			}
			outs, err := x.Execute([]compute.Buffer{data, w}, []bool{true, true}, 0)
			if (err == nil) != (n < failing) {
				t.Fatalf("step %d: %v", n, err)
			}
			if err == nil {
				w = outs[0]
			}
		}
		_ = w.Finalize()
		if n := commonMemory(t); n != 0 {
			t.Errorf("%d pieces of common memory are left after step %d failed", n, failing)
		}
	}
}

// Weights come to common memory some at a time, and each leaves it by itself: a checkpoint that is still written of one keeps no memory of others.
func TestEachWeightHasCommonMemoryOfItsOwn(t *testing.T) {
	const size = 20000
	most := *local.ComingBytes
	*local.ComingBytes = 1
	defer func() { *local.ComingBytes = most }()
	text := strings.NewReplacer(
		"input %0\n", "variable \"/v\" %11 trainable update %14 taskgraph 0\ninput %0\n",
		"gradient %1 = %4\n", "gradient %1 = %4\ngradient %11 = %4\n",
		"update %1 result", "update %1 update %11 result",
		"  %9 = ", `  %11 = Parameter() {Name: "/v", Shape: float32[SIZE]} -> float32[SIZE] : forward taskgraph 0
  %12 = Reshard(%11, %5) -> float32[SIZE] on replica of 2 flat : apply taskgraph 0
  %13 = Sub(%12, %4) -> float32[SIZE] on replica of 2 flat : apply taskgraph 0
  %14 = Reshard(%13) -> float32[SIZE] : apply taskgraph 0
  %9 = `,
		"return %8, %9", "return %8, %14, %9").Replace(shardedDescent)
	x, runner, _ := stepOf(t, text, size, true)
	ws := make([]compute.Buffer, 2)
	for i := range ws {
		var err error
		if ws[i], err = runner.BufferFromFlatData(0, make([]float32, size), shapes.Make(dtypes.Float32, size)); err != nil {
			t.Fatal(err)
		}
	}
	steps := 0
	step := func() {
		t.Helper()
		outs, err := x.Execute([]compute.Buffer{ones(t, runner, size), ws[0], ws[1]}, []bool{true, true, true}, 0)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		steps += copy(ws, outs) / 2
	}
	for want := 1; want <= 2; want++ {
		if step(); commonMemory(t) != want {
			t.Fatalf("after %d steps %d weights are in common memory", steps, commonMemory(t))
		}
	}
	for range 3 {
		r, flat, _ := weight(t, runner, ws[1], size)
		then := flat[0]
		if step(); flat[0] != then || flat[size-1] != then {
			t.Error("a weight that somebody reads changes")
		}
		r.Done()
		for range 40 {
			step()
		}
		if n := commonMemory(t); n != 2 {
			t.Fatalf("after %d steps there are %d pieces of common memory for 2 weights", steps, n)
		}
	}
	for _, w := range ws {
		r, flat, _ := weight(t, runner, w, size)
		if want := float32(-2 * steps); flat[0] != want || flat[size-1] != want {
			t.Errorf("after %d steps a weight is %v … %v", steps, flat[0], flat[size-1])
		}
		r.Done()
	}
}

// noData is the data of a step whose second batch cannot be read.
func noData(t *testing.T, runner *local.Runner, size int) compute.Buffer {
	t.Helper()
	return fedBy(t, runner, size, func(int, func(train.Batch) bool) ([]train.Batch, error) { return nil, errors.New("no more") })
}
