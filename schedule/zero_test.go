// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"
	"testing"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// threeLayers has three layers in regions of their own, each with weights that two model replicas share, the second with two of them, and a bias that they do not. The gradient of
// the first layer's weights is computed in the region of the second, as it happens where a border is not exact.
const threeLayers = `program "three layers"
instances 2 1
taskgraph 0 "" replicate(1) implicit
variable "/w1" %1 trainable update %71 taskgraph 0
variable "/w2" %2 trainable update %72 taskgraph 0
variable "/w3" %3 trainable update %73 taskgraph 0
variable "/u2" %7 trainable update %77 taskgraph 0
variable "/b1" %4 trainable update %74 taskgraph 0
variable "/b2" %5 trainable update %75 taskgraph 0
variable "/b3" %6 trainable update %76 taskgraph 0
input %0
gradient %1 = %61
gradient %2 = %62
gradient %3 = %63
gradient %7 = %68
gradient %4 = %64
gradient %5 = %65
gradient %6 = %66
loss %35
outputs update %1 update %2 update %3 update %7 update %4 update %5 update %6 result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[4]} -> float32[4] : forward varying taskgraph 0
  %1 = Parameter() {Name: "/w1", Shape: float32[4]} -> float32[4] on replica of 2 flat : forward taskgraph 0
  %2 = Parameter() {Name: "/w2", Shape: float32[4]} -> float32[4] on replica of 2 flat : forward taskgraph 0
  %3 = Parameter() {Name: "/w3", Shape: float32[4]} -> float32[4] on replica of 2 flat : forward taskgraph 0
  %4 = Parameter() {Name: "/b1", Shape: float32[4]} -> float32[4] : forward taskgraph 0
  %5 = Parameter() {Name: "/b2", Shape: float32[4]} -> float32[4] : forward taskgraph 0
  %6 = Parameter() {Name: "/b3", Shape: float32[4]} -> float32[4] : forward taskgraph 0
  %7 = Parameter() {Name: "/u2", Shape: float32[4]} -> float32[4] on replica of 2 flat : forward taskgraph 0
  %10 = Reshard(%1) -> float32[4] : forward taskgraph 0
  %11 = Mul(%0, %10) -> float32[4] : forward varying taskgraph 0
  %12 = Add(%11, %4) -> float32[4] : forward varying taskgraph 0
  %20 = Reshard(%2) -> float32[4] : forward taskgraph 0 region 1
  %21 = Mul(%12, %20) -> float32[4] : forward varying taskgraph 0 region 1
  %23 = Reshard(%7) -> float32[4] : forward taskgraph 0 region 1
  %24 = Mul(%21, %23) -> float32[4] : forward varying taskgraph 0 region 1
  %22 = Add(%24, %5) -> float32[4] : forward varying taskgraph 0 region 1
  %30 = Reshard(%3) -> float32[4] : forward taskgraph 0 region 2
  %31 = Mul(%22, %30) -> float32[4] : forward varying taskgraph 0 region 2
  %32 = Add(%31, %6) -> float32[4] : forward varying taskgraph 0 region 2
  %35 = ReduceSum(%32) -> float32[] : forward varying taskgraph 0 region 2
  %40 = Exp(%32) -> float32[4] : backward varying taskgraph 0 region 3
  %41 = Mul(%40, %22) -> float32[4] : backward varying taskgraph 0 region 3
  %42 = Mul(%40, %30) -> float32[4] : backward varying taskgraph 0 region 3
  %43 = Neg(%40) -> float32[4] : backward varying taskgraph 0 region 3
  %44 = Reshard(%2) -> float32[4] : backward taskgraph 0 region 4
  %45 = Mul(%42, %12) -> float32[4] : backward varying taskgraph 0 region 4
  %46 = Mul(%42, %44) -> float32[4] : backward varying taskgraph 0 region 4
  %51 = Reshard(%7) -> float32[4] : backward taskgraph 0 region 4
  %52 = Mul(%46, %51) -> float32[4] : backward varying taskgraph 0 region 4
  %53 = Mul(%42, %21) -> float32[4] : backward varying taskgraph 0 region 4
  %47 = Neg(%42) -> float32[4] : backward varying taskgraph 0 region 4
  %48 = Mul(%52, %0) -> float32[4] : backward varying taskgraph 0 region 4
  %49 = Reshard(%1) -> float32[4] : backward taskgraph 0 region 5
  %50 = Mul(%46, %49) -> float32[4] : backward varying taskgraph 0 region 5
  %68 = Merge(%53) {How: "mean"} -> float32[4] on replica of 2 flat : backward taskgraph 0
  %61 = Merge(%48) {How: "mean"} -> float32[4] on replica of 2 flat : backward taskgraph 0
  %62 = Merge(%45) {How: "mean"} -> float32[4] on replica of 2 flat : backward taskgraph 0
  %63 = Merge(%41) {How: "mean"} -> float32[4] on replica of 2 flat : backward taskgraph 0
  %64 = Merge(%50) {How: "mean"} -> float32[4] : backward taskgraph 0
  %65 = Merge(%47) {How: "mean"} -> float32[4] : backward taskgraph 0
  %66 = Merge(%43) {How: "mean"} -> float32[4] : backward taskgraph 0
  %67 = Merge(%35) {How: "mean"} -> float32[] : forward
  %71 = Sub(%1, %61) -> float32[4] on replica of 2 flat : apply taskgraph 0
  %72 = Sub(%2, %62) -> float32[4] on replica of 2 flat : apply taskgraph 0
  %73 = Sub(%3, %63) -> float32[4] on replica of 2 flat : apply taskgraph 0
  %77 = Sub(%7, %68) -> float32[4] on replica of 2 flat : apply taskgraph 0
  %74 = Sub(%4, %64) -> float32[4] : apply taskgraph 0
  %75 = Sub(%5, %65) -> float32[4] : apply taskgraph 0
  %76 = Sub(%6, %66) -> float32[4] : apply taskgraph 0
  return %71, %72, %73, %77, %74, %75, %76, %67
}`

// A region is one segment, whatever buckets need of it; its weights are gathered in one call while the region before it runs, and its gradients are one bucket.
func TestRegionsUnderZeroAreSegmentsWithOneBucketAndGatheredAhead(t *testing.T) {
	p, err := ir.Parse(threeLayers)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	s, err := Build(p, Options{MaxSplits: 5})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "zero-regions", s.String())
}

// What devices of one memory gather there is there once: each answers for its share.
func TestGatheredWeightsAreCountedOnceForAllThatShareThem(t *testing.T) {
	p, err := ir.Parse(threeLayers)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Build(p, Options{MaxSplits: 5})
	if err != nil {
		t.Fatal(err)
	}
	plans := make([]*emit.Listing, len(s.Segments))
	for i, x := range s.Segments {
		plans[i] = &emit.Listing{Over: slices.Repeat([]int{-1}, len(x.First.Outputs))}
	}
	gathered := func(t Traffic) (most int64) { // in the micro-batch: then weights are updated
		const own = 3*16 + 4*16/2 // biases, and parts of the others
		for _, x := range s.Account(p, t, plans).Brief()[0] {
			if x.At >= 0 && s.Places[0][x.At].Micro != Once {
				most = max(most, x.Live[ForWeights]-own)
			}
		}
		return most
	}
	if alone, shared := gathered(Traffic{}), gathered(Traffic{Shared: true}); alone < 3*16 || alone != 2*shared {
		t.Errorf("two devices gather %d bytes each, and with one memory %d", alone, shared)
	}
}
