// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/easyparallel/epl"
)

// try is a way to train over several processes, or something that goes wrong.
type try struct {
	processes int
	name      string
	network   network
	stages    []epl.Strategy
	apart     bool // stages have devices of their own
	replicas  int
	micro     int
	params    map[string]any
	by        string // how GPUs communicate: "NCCL", or "", because only stages do
	evaluates bool   // after training, on other batches
	does      string // what goes wrong: "" or a word below
}

// What can go wrong.
const (
	killed    = "killed"    // the last worker, in the middle
	different = "different" // workers have different programs
)

const byNCCL = "NCCL"

func (t try) String() string { return fmt.Sprintf("%d processes: %s", t.processes, t.name) }

// settings are those of a worker.
func (t try) settings(timeout fmt.Stringer) map[string]any {
	all := map[string]any{"cluster.colocate_split_and_replicate": !t.apart, "pipeline.num_micro_batch": t.micro, "communication.timeout": timeout.String()}
	maps.Copy(all, t.params)
	return all
}

// alone is the same training on one device: all batches of a step are one, and what saves memory is left out. Mixed precision is not.
func (t try) alone() try {
	one := try{processes: 1, network: t.network.alone(), replicas: 1, micro: 1, params: map[string]any{}, evaluates: t.evaluates}
	for range t.stages {
		one.stages = append(one.stages, epl.Replicate(1))
	}
	for k, v := range t.params {
		if strings.HasPrefix(k, "amp.") {
			one.params[k] = v
		}
	}
	one.name = fmt.Sprint(one.network, len(one.stages), t.batches(), one.params, one.evaluates)
	return one
}

// batches is how many a step takes.
func (t try) batches() int { return t.replicas * t.micro }

// tolerance is how far losses and weights may be off, relative to the largest of each.
func (t try) tolerance() float64 {
	if t.params["amp.level"] != nil || t.params["communication.fp16"] != nil {
		return 1e-2
	}
	return 1e-4
}

// tries are all.
func tries() (all []try) {
	one := []epl.Strategy{epl.Replicate(1, "all")}
	split := func(k int) []epl.Strategy { return []epl.Strategy{epl.Split(k, "all")} }
	two := []epl.Strategy{epl.Replicate(1, "first"), epl.Replicate(1, "second")}
	zero := func(level string) map[string]any { return map[string]any{"zero.level": level} }
	amp := map[string]any{"amp.level": "O1", "amp.dtype": "bfloat16"}
	half := map[string]any{"communication.fp16": true}
	scaled := map[string]any{"amp.level": "O1", "amp.dtype": "float16"}
	recompute := map[string]any{"gradient_checkpoint.type": "auto"}
	offload := map[string]any{"offload.level": "v0"}
	together := func(all ...map[string]any) map[string]any {
		sum := map[string]any{}
		for _, x := range all {
			maps.Copy(sum, x)
		}
		return sum
	}
	for _, n := range []int{2, 4} {
		dp := try{processes: n, network: even, stages: one, replicas: n, micro: 1, by: byNCCL}
		add := func(t try, name string, params ...map[string]any) {
			t.name, t.params = name, together(params...)
			all = append(all, t)
		}
		accumulated := dp
		accumulated.micro = 3
		add(dp, "data parallelism")
		add(accumulated, "data parallelism, 3 micro-batches")
		add(dp, "ZeRO v0", zero("v0"))
		add(dp, "ZeRO v1", zero("v1"))
		add(dp, "ZeRO v2", zero("v2"))
		add(accumulated, "ZeRO v2, 3 micro-batches", zero("v2"))
		add(dp, "data parallelism, recompute", recompute)
		add(dp, "data parallelism, bfloat16", amp)
		add(dp, "data parallelism, gradients as float16", half)
		add(accumulated, "ZeRO v2, float16, loss scale, gradients as float16", zero("v2"), scaled, half)
		add(dp, "data parallelism, offload", offload)
		add(accumulated, "ZeRO v2, recompute, offload, bfloat16", zero("v2"), recompute, offload, amp)
		parts := try{processes: n, network: even, stages: split(n), replicas: 1, micro: 1, by: byNCCL}
		add(parts, fmt.Sprintf("Split(%d)", n))
		parts.micro = 2
		add(parts, fmt.Sprintf("Split(%d), 2 micro-batches, recompute", n), recompute)
		add(parts, fmt.Sprintf("Split(%d), bfloat16", n), amp)
		evaluated := parts
		evaluated.evaluates = true
		add(evaluated, fmt.Sprintf("Split(%d), evaluation", n))
		parts.network = uneven
		add(parts, fmt.Sprintf("Split(%d), a vocabulary of 31", n))
		add(try{processes: n, network: newTranslator(4, n), replicas: 1, micro: 2, by: byNCCL}, fmt.Sprintf("moe, experts over %d, all-to-all", n))
		pipe := try{processes: n, network: even, stages: two, apart: true, replicas: n / 2, micro: 4}
		if n == 2 {
			add(pipe, "2 stages, 1F1B")
			add(pipe, "2 stages, 1F1B, recompute", recompute)
			add(pipe, "2 stages, 1F1B, bfloat16", amp)
			continue
		}
		pipe.by = byNCCL
		add(pipe, "2 replicas × 2 stages, 1F1B")
		add(pipe, "2 replicas × 2 stages, 1F1B, ZeRO v1", zero("v1"))
		add(try{processes: n, network: even, stages: split(2), replicas: 2, micro: 2, by: byNCCL}, "2 replicas × Split(2)")
		add(try{processes: n, network: uneven, stages: split(2), replicas: 2, micro: 2, by: byNCCL}, "2 replicas × Split(2), a vocabulary of 31")
		add(try{processes: n, network: uneven, stages: split(2), replicas: 2, micro: 2, by: byNCCL}, "2 replicas × Split(2), ZeRO v2, a vocabulary of 31", zero("v2"))
		add(try{processes: n, network: even, stages: []epl.Strategy{epl.Split(2, "first"), epl.Split(2, "second")}, apart: true, replicas: 1, micro: 4, by: byNCCL},
			"2 stages × Split(2), 1F1B")
		add(try{processes: n, network: newTranslator(4, 4), replicas: 1, micro: 1, evaluates: true, by: byNCCL}, "moe, experts over 4, evaluation")
		add(try{processes: n, network: newTranslator(4, 2), replicas: 2, micro: 1, by: byNCCL}, "moe, 2 replicas × experts over 2")
	}
	for _, n := range []int{2, 4} {
		all = append(all,
			try{processes: n, name: "the last worker is killed", network: even, stages: one, replicas: n, micro: 1, does: killed},
			try{processes: n, name: "different programs", network: even, stages: one, replicas: n, micro: 1, does: different})
	}
	return all
}

// find returns the try with a name.
func find(name string) (try, bool) {
	all := tries()
	for _, t := range all {
		all = append(all, t.alone())
	}
	i := slices.IndexFunc(all, func(t try) bool { return t.String() == name })
	if i < 0 {
		return try{}, false
	}
	return all[i], true
}
