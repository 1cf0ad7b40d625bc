// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/simulate"
)

// at once is a link that takes no time.
var atOnce = cost.Link{Bandwidth: math.Inf(1)}

// device does nothing but what tests say how long it takes.
var device = cost.Flat(1e9, math.Inf(1), 0)

// value is one of so many bytes.
func value(bytes int) *ir.Value {
	shape := shapes.Make(dtypes.Uint8, bytes)
	return ir.NewProgram("test").NewOp(&ir.Parameter{Name: "x", Shape: shape}, nil, shape).Outputs[0]
}

// pipeline makes the lists of a pipeline whose stages send each other values of so many bytes.
func pipeline(t *testing.T, p schedule.Pipeline, replicas, bytes int) *schedule.Program {
	t.Helper()
	order, err := p.Order()
	if err != nil {
		t.Fatal(err)
	}
	s := &schedule.Program{Name: "test", Local: ir.Local{Replicas: replicas, MicroBatches: p.Micro}, Pipeline: p}
	for g := range p.Groups {
		s.Groups = append(s.Groups, []int{g})
	}
	for r := range replicas {
		var ranks []int
		for g := range p.Groups {
			ranks = append(ranks, r*p.Groups+g)
		}
		s.Ranks = append(s.Ranks, ranks)
	}
	kinds := []schedule.Part{schedule.Forward, schedule.Backward, schedule.Weights}
	for stage := range p.Stages {
		for _, kind := range kinds {
			x := &ir.Segment{Name: fmt.Sprintf("%s %d", kind, stage)}
			s.Segments = append(s.Segments, &schedule.Segment{Segment: x, First: x, Place: stage % p.Groups, Stage: stage, Kind: kind})
		}
	}
	for stage := range p.Stages - 1 { // forward, and back
		v := value(bytes)
		s.Transfers = append(s.Transfers, schedule.Transfer{Value: v, Into: v, From: stage % p.Groups, To: (stage + 1) % p.Groups},
			schedule.Transfer{Value: v, Into: v, From: (stage + 1) % p.Groups, To: stage % p.Groups})
	}
	for _, tasks := range order {
		var list []schedule.Instr
		add := func(kind schedule.Kind, stage, back, micro int) {
			list = append(list, schedule.Instr{Kind: kind, Transfer: 2*stage + back, Micro: micro})
		}
		for _, x := range tasks {
			if x.Kind == schedule.ForwardTask && x.Stage > 0 {
				add(schedule.Receive, x.Stage-1, 0, x.Micro)
			}
			if x.Kind == schedule.BackwardTask && x.Stage < p.Stages-1 {
				add(schedule.Receive, x.Stage, 1, x.Micro)
			}
			list = append(list, schedule.Instr{Kind: schedule.Run, Segment: 3*x.Stage + int(x.Kind), Micro: x.Micro})
			if x.Kind == schedule.ForwardTask && x.Stage < p.Stages-1 {
				add(schedule.Send, x.Stage, 0, x.Micro)
			}
			if x.Kind == schedule.BackwardTask && x.Stage > 0 {
				add(schedule.Send, x.Stage-1, 1, x.Micro)
			}
		}
		s.Places = append(s.Places, list)
	}
	return s
}

// layers is data parallelism: backward of so many layers, each of which has a bucket of so many bytes; then they are waited for, and applied.
func layers(replicas, layers, bytes int) *schedule.Program {
	s := &schedule.Program{Name: "test", Local: ir.Local{Replicas: replicas, MicroBatches: 1}, Groups: [][]int{{0}},
		Pipeline: schedule.Pipeline{Strategy: schedule.PreferBackward, Stages: 1, Groups: 1, Micro: 1}}
	for r := range replicas {
		s.Ranks = append(s.Ranks, []int{r})
	}
	segment := func(name string, kind schedule.Part) int {
		x := &ir.Segment{Name: name}
		s.Segments = append(s.Segments, &schedule.Segment{Segment: x, First: x, Kind: kind})
		return len(s.Segments) - 1
	}
	var list []schedule.Instr
	for i := range layers {
		v := value(bytes)
		p := ir.NewProgram("merge")
		s.Buckets = append(s.Buckets, schedule.Bucket{How: ir.Mean, Merges: []*ir.Op{p.NewOp(&ir.Merge{How: ir.Mean}, []*ir.Value{v}, v.Shape)}, After: i})
		list = append(list, schedule.Instr{Kind: schedule.Run, Segment: segment("backward", schedule.Backward), Micro: 0},
			schedule.Instr{Kind: schedule.Merge, Bucket: i, Micro: schedule.Once})
	}
	for i := range layers {
		list = append(list, schedule.Instr{Kind: schedule.Wait, Bucket: i, Micro: schedule.Once})
	}
	s.Places = [][]schedule.Instr{append(list, schedule.Instr{Kind: schedule.Run, Segment: segment("apply", schedule.Apply), Micro: schedule.Once})}
	return s
}

// times says how long segments take, by kind, on a device of speed 1.
func times(forward, backward, weights, apply time.Duration) func(*schedule.Segment, cost.Device) time.Duration {
	return func(s *schedule.Segment, d cost.Device) time.Duration {
		all := map[schedule.Part]time.Duration{schedule.Forward: forward, schedule.Backward: backward, schedule.Weights: weights, schedule.Apply: apply}
		return time.Duration(float64(all[s.Kind]) / d.Speed)
	}
}

func run(t *testing.T, s *schedule.Program, c *cost.Cluster, o simulate.Options) *simulate.Result {
	t.Helper()
	r, err := simulate.Run(s, c, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
