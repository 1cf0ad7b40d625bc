// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command xla runs EPL over GoMLX's own XLA backend, on a GPU or a CPU, and compares it with that by itself: the losses and weights of small models
// must be the same, bit for bit, on one device. (examples/gpu checks EPL's own runner for GPUs, and plans for several devices.)
//
//	cd examples/xla && go build . && ./xla -backend xla:cuda
//
// It is a module of its own, since that backend needs cgo. Some kernels of CUDA add up in an order that changes from run to run;
// XLA_FLAGS=--xla_gpu_deterministic_ops=true makes plain XLA repeat itself, and so makes the comparison fair.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

const steps = 10

func main() {
	backend := flag.String("backend", "xla:cuda", "the GoMLX backend to run on")
	only := flag.String("run", "", "regular expression: the comparisons to make")
	flag.Parse()
	which := regexp.MustCompile(*only)
	failed := 0
	compare := func(name, what string, run func() error) {
		line := fmt.Sprintf("%-24s %-46s", name, what)
		if !which.MatchString(line) {
			return
		}
		verdict := "ok"
		if err := run(); err != nil {
			verdict = err.Error()
			failed++
		}
		fmt.Println(line, verdict)
	}
	for _, m := range equiv.Models() {
		compare(m.Name, "one device, no passes: bits of plain XLA", func() error { return oneDevice(*backend, m, "none", equiv.SameBits) })
		compare(m.Name, "one device, all passes: losses of plain XLA", func() error { return oneDevice(*backend, m, "all", closeLosses) })
	}
	if failed > 0 {
		fmt.Printf("%d comparisons failed\n", failed)
		os.Exit(1)
	}
}

func sgd() optimizer.Interface { return optimizer.StochasticGradientDescent().WithDecay(false) }

func closeLosses(a, b *equiv.Run) error { return equiv.CloseLosses(a, b, 1e-4) }

// oneDevice compares EPL on one device with the backend by itself.
func oneDevice(backend string, m equiv.Model, passes string, compare func(a, b *equiv.Run) error) error {
	plain, err := compute.NewWithConfig(backend)
	if err != nil {
		return err
	}
	want, err := equiv.Train(plain, m, sgd(), steps)
	if err != nil {
		return err
	}
	cfg, err := epl.NewConfig(map[string]any{"cluster.colocate_split_and_replicate": true})
	if err != nil {
		return err
	}
	env, err := epl.Init(cfg, epl.WithInner("gomlx-"+backend), epl.WithPasses(passes))
	if err != nil {
		return err
	}
	// The environment stays open: the weights that are compared live on its device.
	got, err := equiv.TrainOn(env.Backend(), env.Dataset(equiv.Dataset{Batch: m.Batch}), m, epl.Optimizer(sgd()), steps)
	if err != nil {
		return err
	}
	return compare(want, got)
}
