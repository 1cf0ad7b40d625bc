// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cost"
)

var small = transformer{layers: 4, width: 256, length: 64, vocabulary: 1000}

func TestTheTableSaysWhatFails(t *testing.T) {
	x := &table{figure: "1"}
	x.given("1", "slow", 8)
	x.note("what is assumed")
	x.note("what is assumed")
	x.add("slow", 8, 2, 2)
	x.add("fast", 8, 4, 3)
	x.add("faster", 8, 4.05, 2.9) // as published, they may be the same
	x.figure = "2"
	x.add("slow", 8, 100, 104)
	x.add("fast", 8, 110, 104)
	x.add("fast", 16, 50, 51)
	x.ratio("fast over slow", 8, 1.1, 1)
	var b strings.Builder
	if err := x.write(&b); err != nil {
		t.Fatal(err)
	}
	const want = `| figure | what | GPUs | published | predicted | error |
|---|---|---|---|---|---|
| 1 | slow | 8 | 2 | 2 | given |
| 1 | fast | 8 | 4 | 3 | **-25%** |
| 1 | faster | 8 | 4.05 | 2.9 | **-28%** |
| 2 | slow | 8 | 100 | 104 | +4% |
| 2 | fast | 8 | 110 | 104 | -5% |
| 2 | fast | 16 | 50 | 51 | +2% |
| 2 | fast over slow | 8 | 1.1 | 1 | -9% |

- what is assumed

Median error of 6 predictions: 7.3 %; 4 are within 10 %. By figure: 1 26.7 %, 2 4.7 %.
Wrong order: figure 2 on 8 GPUs, fast (110, predicted 104) and slow (100, predicted 104).
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
}

// A small model has its rows: what was calibrated is as given, communication beside the backward part is no slower than after it, and speed-ups are below the number of GPUs.
func TestRowsArePredictedFromOnePoint(t *testing.T) {
	x := &table{planner: newPlanner(), figure: "small"}
	n := small.staged(8, 1)
	h, err := x.network(job{n, 16, after}, 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.dataParallel(n, h, []float64{1, 5, 9}, []float64{1, 6, 10}); err != nil {
		t.Fatal(err)
	}
	if len(x.rows) != 6 || math.Abs(x.rows[1].off()) > 0.01 {
		t.Fatalf("TF on 16 GPUs was to be 5: %+v", x.rows)
	}
	for i, tf := range x.rows[:3] {
		if whale := x.rows[3+i]; whale.predicted < tf.predicted || whale.predicted > float64(whale.gpus) {
			t.Errorf("%+v and %+v", tf, whale)
		}
	}
}

// Dealt by speed, the work of two kinds of GPUs takes less time than dealt evenly, by no more than what the slower ones are slower than the mean.
func TestWorkThatIsDealtBySpeedIsFaster(t *testing.T) {
	x := &table{planner: newPlanner()}
	h := hardware{profile: "V100-32", speed: 1, between: 1e12}
	if err := x.replicas("replicas", small.staged(8, 1), h, 1); err != nil {
		t.Fatal(err)
	}
	deep := small
	deep.layers = 16
	if err := x.stages("stages", deep, h, 1); err != nil {
		t.Fatal(err)
	}
	for _, r := range x.rows {
		if gain := r.predicted; gain < 1.05 || gain > 1.5 {
			t.Errorf("%s: it is %.3f times as fast", r.what, gain)
		}
	}
}

// Nothing of a model that is recorded exists but its shapes: these weights would be 800 GB.
func TestModelsHaveNoWeights(t *testing.T) {
	const classes = 100_000_000
	p := newPlanner()
	r, err := p.plan(job{resnet(classes, 8, byColumn, 8), 8, colocated}, hardware{})
	if err != nil {
		t.Fatal(err)
	}
	if peak := r.Account.Peak(); peak < classes*2048*4/8 {
		t.Errorf("a GPU needs %d bytes", peak)
	}
}

// What one GPU says of ResNet50 is how fast convolutions are: products are near their limit.
func TestOnlyConvolutionsAreCalibrated(t *testing.T) {
	before, err := cost.Find("V100-32")
	if err != nil {
		t.Fatal(err)
	}
	after, err := hardware{speed: 2}.find("V100-32")
	if err != nil {
		t.Fatal(err)
	}
	for family, times := range map[string]float64{cost.Conv: 2, cost.Dot: 1, cost.Elementwise: 1} {
		a, b := before.Rate(family, dtypes.Float32, 1e9), after.Rate(family, dtypes.Float32, 1e9)
		if math.Abs(b/a-times) > 1e-9 {
			t.Errorf("%s: %g and %g flops per second", family, a, b)
		}
	}
}
