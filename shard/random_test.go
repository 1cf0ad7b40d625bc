// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/shard"
)

var (
	programs     = flag.Int("shard.programs", 60, "how many random programs to partition")
	firstProgram = flag.Uint64("shard.program", 1, "the seed of the first one")
)

// onDevices puts the TaskGraphs of a program on k devices. What is given is data or a variable, and TaskGraphs that read data are
// split or not.
func onDevices(t *testing.T, p *ir.Program, rng *rand.Rand, k int) {
	t.Helper()
	tg := &ir.TaskGraph{ID: len(p.TaskGraphs), Name: "all", Devices: k}
	p.TaskGraphs = append(p.TaskGraphs, tg)
	p.Stages = []ir.Stage{{TaskGraphs: p.TaskGraphs}}
	data := rng.IntN(2) == 0
	for _, tg := range p.TaskGraphs {
		if tg.Kind = ir.Split; data {
			tg.Kind = ir.StrategyKind(rng.IntN(2))
		}
	}
	for j := range k {
		p.Stages[0].Places = append(p.Stages[0].Places, j)
	}
	for _, op := range p.Main.Ops {
		if op.Twin, op.Of = nil, nil; op.TaskGraph == nil {
			op.TaskGraph = tg
		}
	}
	var inputs []*ir.Value
	for i, v := range p.Inputs {
		if data && (i == 0 || rng.IntN(2) == 0) {
			inputs = append(inputs, v)
			continue
		}
		p.Variables = append(p.Variables, &ir.Variable{Path: fmt.Sprintf("/%d", i), Param: v, Trainable: true})
	}
	p.Inputs = inputs
	for _, x := range p.Variables {
		x.TaskGraph = p.TaskGraphs[rng.IntN(len(p.TaskGraphs))]
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
}

// weights are those of k devices.
func weights(rng *rand.Rand, k int) (list []int) {
	for range k {
		list = append(list, 1+rng.IntN(5))
	}
	return list
}

// Whatever a program computes, and whatever it is computed from is sharded along, the results are the same.
func TestRandomProgramsOfShardedVariablesGiveTheResultsOfOneDevice(t *testing.T) {
	on, err := passes.Parse("all", nil)
	if err != nil {
		t.Fatal(err)
	}
	for seed := *firstProgram; seed < *firstProgram+uint64(*programs); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomProgram(t, on, seed, false) })
		if seed%3 == 0 {
			t.Run(fmt.Sprint(seed, " on devices of different weights"), func(t *testing.T) { randomProgram(t, on, seed, true) })
		}
	}
}

// randomProgram partitions a program, and compares results. If weighted, devices have different weights.
func randomProgram(t *testing.T, on passes.Set, seed uint64, weighted bool) {
	r := equiv.NewRandom(seed)
	p, err := r.Record()
	if err != nil {
		t.Skipf("GoMLX: %v", err)
	}
	rng := rand.New(rand.NewPCG(seed, 9))
	if rng.IntN(2) == 0 {
		if _, err := passes.Run(p, on, passes.Options{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	k := 2 + rng.IntN(3)
	onDevices(t, p, rng, k)
	if weighted {
		p.Stages[0].Weights = weights(rng, k)
	}
	if _, err := shard.Partition(p.Clone(), nil); err != nil {
		t.Skip(err)
	}
	choice := shard.Choice{}
	for v, pl := range randomChoice(p, rng, k) {
		if !strings.Contains(ir.ShapeText(v.Shape), "uint64") { // the state of random numbers
			choice[v] = pl
		}
	}
	before := p.String()
	given := draw(p, rng, 16)
	want, got, report := partitioned(t, p, choice, given)
	for i := range want {
		if i < len(r.Results) && r.Results[i].Coarse {
			continue
		}
		same(t, fmt.Sprintf("output %d", i), want[i], got[i])
	}
	if t.Failed() {
		t.Logf("%s\n%s\nis partitioned to\n%s\n%s", r, before, p, strings.Join(slices.Concat(report.Lines()), "\n"))
	}
}
