// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strconv"

	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/trace"
)

// zeroPath is that of workers that train one of the zeroModels.
const zeroPath = "train-zero"

// envZero names the model that a worker trains.
const envZero = "EPL_BENCH_ZERO"

// zeroModels are what ZeRO is measured with, by name: half of the batch of a step, for two devices. Adam trains them, for which there is
// twice as much optimizer state as weights.
var zeroModels = map[string]problem{
	"gpt": gpt(256, 4),
	"mlp": {mlp(2048, 2048, 1024), loss.MeanSquaredError, vectors(64, 1024)},
}

// zeroRows tell what is left of the speed of data parallelism when optimizer state, gradients and weights are sharded: on two devices of a
// process, and on two workers with a core each. PyTorch shards optimizer state by ZeroRedundancyOptimizer, and all by
// FSDP, which on CPUs needs PyTorch 2.6.
func zeroRows() (rows []Row) {
	const workers = 2
	for _, model := range []string{"gpt", "mlp"} {
		devices := func(s settings) func() (side, error) {
			return func() (side, error) { return zeroModels[model].dealtBy(s, adam(), epl.WithLocalDevices(workers)) }
		}
		processes := func(s settings) func() (side, error) {
			return func() (side, error) { return steps(zeroTraining(workers, model, s)) }
		}
		for _, x := range []struct {
			level  string
			target float64
		}{{"v0", 0.97}, {"v1", 0.97}, {"v2", 0.85}} {
			name, on := "zero/"+model+"/"+x.level, settings{"zero.level": x.level}
			rows = append(rows,
				Row{Name: name, Peer: "EPL, data parallel", Pairs: 15, Warm: 2, Target: x.target,
					Ours: func() (side, error) { return inTurns(devices(on)()) }, Theirs: func() (side, error) { return inTurns(devices(nil)()) }},
				Row{Name: name + "/2-workers", Peer: "EPL, data parallel", Pairs: 15, Warm: 2, Target: x.target, Ours: processes(on), Theirs: processes(nil)},
				shareRow(name+"/communication-exposed", devices(on), func(t trace.Times) float64 { return float64(t.Exposed) }))
		}
	}
	for _, x := range []struct {
		model string
		torch torchModelOf
		batch int
	}{{"gpt", torchGPT, 8}, {"mlp", smallTorchMLP, 128}} {
		torch := func(way string) func() (side, error) {
			return func() (side, error) { return steps(torchTraining(workers, way, "adam", x.torch, x.batch)) }
		}
		for _, peer := range []struct{ way, name, level string }{{"zero", "ZeroRedundancyOptimizer", "v0"}, {"fsdp", "FSDP", "v2"}} {
			ours := func() (side, error) {
				return steps(zeroTraining(workers, x.model, settings{"zero.level": peer.level}))
			}
			rows = append(rows,
				Row{Name: "zero/" + x.model + "/PyTorch-" + peer.name, Peer: "PyTorch DDP over Gloo", Pairs: 15, Warm: 2, Ours: torch(peer.way), Theirs: torch("ddp")},
				Row{Name: "zero/" + x.model + "/" + peer.level + "/2-workers", Peer: "PyTorch " + peer.name, Pairs: 15, Warm: 2, Ours: ours, Theirs: torch(peer.way)})
		}
	}
	return rows
}

// zeroTraining is workers with one core each.
func zeroTraining(workers int, model string, s settings) (*fleet, error) {
	return ourFleet(workers, zeroPath, append(s.environment(), "GOMAXPROCS=2", envZero+"="+model, cluster.EnvNumWorkers+"="+strconv.Itoa(workers))...)
}

// zeroWorker is one of them.
func zeroWorker(index int) error {
	s, err := zeroModels[os.Getenv(envZero)].dealt(adam(), epl.WithLocalDevices(1))
	if err != nil {
		return err
	}
	return obeying(index, s)
}
