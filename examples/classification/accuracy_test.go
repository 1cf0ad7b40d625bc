// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
	"testing"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/easyparallel/epl"
)

// accuracies computes top-1 and top-5.
func accuracies(t *testing.T, labels []int64, logits []float32) (one, five float32) {
	t.Helper()
	env, err := epl.Init(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	exec, err := NewExec(env.Backend(), func(labels, logits *Node) (*Node, *Node) {
		return top1(nil, []*Node{labels}, []*Node{logits}), topK(5)(nil, []*Node{labels}, []*Node{logits})
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := exec.Call(tensors.FromFlatDataAndDimensions(labels, len(labels), 1),
		tensors.FromFlatDataAndDimensions(logits, len(labels), len(logits)/len(labels)))
	if err != nil {
		t.Fatal(err)
	}
	return tensors.ToScalar[float32](got[0]), tensors.ToScalar[float32](got[1])
}

func TestAccuraciesCountTheLargerLogits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const batch, classes = 200, 17
	labels, logits := make([]int64, batch), make([]float32, batch*classes)
	var one, five float32
	for i := range labels {
		labels[i] = random.Int64N(classes)
		row := logits[i*classes:][:classes]
		larger := 0
		for c, at := range random.Perm(classes) { // no two are equal, since those are a matter of taste
			row[c] = float32(at) - 8
		}
		if i%9 == 0 {
			row[(labels[i]+1)%classes] = float32(math.Inf(-1))
		}
		for c := range row {
			if row[c] > row[labels[i]] {
				larger++
			}
		}
		if larger == 0 {
			one += 1.0 / batch
		}
		if larger < 5 {
			five += 1.0 / batch
		}
	}
	gotOne, gotFive := accuracies(t, labels, logits)
	if near := func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-5 }; !near(gotOne, one) || !near(gotFive, five) {
		t.Errorf("top-1 is %v and top-5 %v; they should be %v and %v", gotOne, gotFive, one, five)
	}
}

func TestAccuraciesTellClassesAboveAllExactFloatsApart(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 17 million classes; not with -short")
	}
	const exact = 1 << 24 // and exact+1 is the same as a float32
	logits := make([]float32, exact+3)
	logits[exact], logits[exact+1] = 2, 1
	for c := range 5 {
		logits[c] = 1.5
	}
	for label, want := range map[int64]float32{exact: 1, exact + 1: 0} {
		if one, five := accuracies(t, []int64{label}, logits); one != want || five != want {
			t.Errorf("for the class %d, top-1 is %v and top-5 %v; both should be %v", label, one, five, want)
		}
	}
}
