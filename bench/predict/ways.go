// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
)

// way is how a network is run.
type way struct {
	Network string
	Name    string
	Devices int // of a worker
	Workers int // processes; 0 is 1
	Stages  int // by annotation
	Split   int // so many devices share every part, or, if Heavy, only heavy ones, the others being replicas
	Heavy   bool
	Micro   int // micro-batches of a step; 0 is 1
	// Auto: EPL chooses. The network has no annotations.
	Auto     bool
	Settings map[string]any
}

// settings are those of the configuration.
func (w way) settings() map[string]any {
	all := maps.Clone(w.Settings)
	if all == nil {
		all = map[string]any{}
	}
	if w.Micro > 1 {
		all["pipeline.num_micro_batch"] = w.Micro
	}
	if w.Heavy {
		all["cluster.colocate_split_and_replicate"] = true
	}
	if w.Auto {
		all["auto.auto_parallel"] = true
	}
	return all
}

func (w way) String() string { return w.Network + ", " + w.Name }

// ways are the rows of the table. What a planner chooses is compared with those that take as many samples on as many devices.
func ways() (all []way) {
	zero := func(level string) map[string]any { return map[string]any{"zero.level": level} }
	recompute := map[string]any{"gradient_checkpoint.type": "auto"}
	both := zero("v1")
	maps.Copy(both, recompute)
	common := []way{
		{Name: "1 device", Devices: 1},
		{Name: "DP 2", Devices: 2},
		{Name: "2 stages", Devices: 2, Stages: 2, Micro: 2},
	}
	split := way{Name: "split 2", Devices: 2, Split: 2, Micro: 2}
	heavy := way{Name: "heavy parts split 2", Devices: 2, Split: 2, Heavy: true, Micro: 2}
	more := map[string][]way{
		"mlp": {split,
			{Name: "DP 2, ZeRO v0", Devices: 2, Settings: zero("v0")},
			{Name: "DP 2, ZeRO v1", Devices: 2, Settings: zero("v1")},
			{Name: "DP 2, ZeRO v2", Devices: 2, Settings: zero("v2")},
			{Name: "2 stages, 8 micro-batches", Devices: 2, Stages: 2, Micro: 8},
			{Name: "DP 2, 2 workers", Devices: 1, Workers: 2},
			{Name: "2 stages × DP 2", Devices: 4, Stages: 2, Micro: 2},
		},
		"gpt": {split,
			{Name: "1 device, recompute", Devices: 1, Settings: recompute},
			{Name: "DP 2, ZeRO v1, recompute", Devices: 2, Settings: both},
			{Name: "2 stages, 4 micro-batches", Devices: 2, Stages: 2, Micro: 4},
			{Name: "2 stages, 2 workers", Devices: 1, Workers: 2, Stages: 2, Micro: 4},
			{Name: "split 2 × DP 2", Devices: 4, Split: 2},
		},
		"cnn": {
			{Name: "1 device, recompute", Devices: 1, Settings: recompute},
			{Name: "DP 2, 2 workers", Devices: 1, Workers: 2},
			{Name: "DP 4", Devices: 4},
		},
		"moe": {split, heavy,
			{Name: "heavy parts split 4", Devices: 4, Split: 4, Heavy: true},
		},
		"classifier": {split, heavy,
			{Name: "DP 2, ZeRO v1", Devices: 2, Settings: zero("v1")},
			{Name: "heavy parts split 2, 2 workers", Devices: 1, Workers: 2, Split: 2, Heavy: true},
		},
	}
	for _, name := range []string{"mlp", "gpt", "cnn", "moe", "classifier"} {
		rows := append(append(append([]way{}, common...), more[name]...), way{Name: "auto, 2 devices", Devices: 2, Auto: true})
		for _, w := range rows {
			w.Network, w.Workers = name, max(w.Workers, 1)
			all = append(all, w)
		}
	}
	return all
}

// cluster describes the devices for a prediction: workers of this machine.
func (w way) cluster() string {
	return fmt.Sprintf("profile: this\nworkers:\n- {host: here, devices: %d, count: %d}\n", w.Devices, w.Workers)
}
