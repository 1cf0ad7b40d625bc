// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command gpu checks training on GPUs: the weights of small models must be, up to the rounding of sums, those of the CPU on one device; and those
// of one device on several, as model replicas, as stages of a pipeline, as shards of a split, and with what saves memory.
//
//	go run ./examples/gpu -backend xla:cuda,share=2 -run 'split|ZeRO'
//
// With share=2 every GPU is two devices, so that one GPU is enough. It needs a plugin of XLA: see docs/gpu.md.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
	_ "github.com/easyparallel/epl/xla"
)

const steps = 5

var (
	backend = flag.String("backend", "xla:cuda,share=2", "what to compare with the CPU")
	only    = flag.String("run", "", "regular expression: the comparisons to make")
)

func main() {
	flag.Parse()
	which := regexp.MustCompile(*only)
	failed, made := 0, 0
	compare := func(name, what string, tolerance float64, want, got func() (*equiv.Run, error)) {
		line := fmt.Sprintf("%-24s %-48s", name, what)
		if !which.MatchString(line) {
			return
		}
		start := time.Now()
		verdict := "ok"
		if err := alike(tolerance, want, got); err != nil {
			verdict = err.Error()
			failed++
		}
		made++
		fmt.Printf("%s %5.1f s  %s\n", line, time.Since(start).Seconds(), verdict)
	}
	// on trains on some devices of GPUs.
	on := func(m equiv.Model, p plan) func() (*equiv.Run, error) {
		return func() (*equiv.Run, error) { return train(*backend, m, p) }
	}
	for _, m := range equiv.Models() {
		whole := plan{devices: 1, micro: 1, colocate: true}
		op := whole
		op.passes = "none"
		if strings.HasPrefix(m.Name, "transformer") { // they have dropout, and every backend draws random numbers of its own
			compare(m.Name, "one device: as without passes", 1e-4, on(m, op), on(m, whole))
		} else {
			cpu := func() (*equiv.Run, error) { return train("go", m, whole) }
			compare(m.Name, "one device, no passes: as the CPU", 1e-4, cpu, on(m, op))
			compare(m.Name, "one device: as the CPU", 1e-4, cpu, on(m, whole))
		}
		compare(m.Name, "two model replicas: as two micro-batches", 1e-4, on(m, plan{devices: 1, micro: 4, colocate: true}), on(m, plan{devices: 2, micro: 2, colocate: true}))
	}
	for _, m := range equiv.Models()[:2] {
		for _, x := range memory {
			with := plan{devices: x.devices, micro: 2, colocate: true, params: x.params}
			without := with
			without.params = nil
			compare(m.Name, fmt.Sprintf("%d devices, %s: as without", x.devices, x.what), 1e-3, on(m, without), on(m, with))
		}
	}
	for _, s := range equiv.StagedModels() {
		if in, _ := s.Batch(0); len(in) != 1 || s.Loss == nil {
			continue // it takes more than the other models here
		}
		m := equiv.Model{Name: s.Name, Loss: s.Loss, Batch: s.Batch, Build: func(scope *model.Scope, x *graph.Node) *graph.Node {
			return s.Build(2)(scope, []*graph.Node{x})[0]
		}}
		compare(m.Name, "two stages, three micro-batches: as one stage", 1e-4, on(m, plan{devices: 1, micro: 3, colocate: true}), on(m, plan{devices: 2, micro: 3}))
	}
	for _, p := range equiv.PartedModels() {
		if in, _ := p.Batch(0); len(in) != 1 || p.Loss == nil || p.Colocated {
			continue
		}
		split := func(k int) func() (*equiv.Run, error) {
			all := equiv.Strategies(slices.Repeat([]epl.Strategy{epl.Split(k, "all")}, p.Least))
			return on(equiv.Model{Name: p.Name, Loss: p.Loss, Batch: p.Batch, Build: func(scope *model.Scope, x *graph.Node) *graph.Node {
				return p.Build(all)(scope, []*graph.Node{x})[0]
			}}, plan{devices: k, micro: 2, colocate: true})
		}
		compare(p.Name, "split over two devices: as on one", 1e-3, split(1), split(2)) // small sums are added up in another order
	}
	fmt.Printf("%d of %d comparisons failed\n", failed, made)
	if failed > 0 {
		os.Exit(1)
	}
}

// plan is how a model is trained.
type plan struct {
	devices, micro int
	colocate       bool
	passes         string
	params         map[string]any
}

// memory is what saves memory, on one device or between two.
var memory = []struct {
	what    string
	devices int
	params  map[string]any
}{
	{"recompute", 1, map[string]any{"gradient_checkpoint.type": "auto"}},
	{"offload", 1, map[string]any{"offload.level": "v0"}},
	{"apply groups", 1, map[string]any{"optimizer.num_apply_group": 3}},
	{"ZeRO v0", 2, map[string]any{"zero.level": "v0"}},
	{"ZeRO v1", 2, map[string]any{"zero.level": "v1"}},
	{"ZeRO v2", 2, map[string]any{"zero.level": "v2"}},
	{"all of it", 2, map[string]any{"zero.level": "v2", "offload.level": "v0", "gradient_checkpoint.type": "auto", "optimizer.num_apply_group": 3}},
}

// alike compares the weights after two ways to train.
func alike(tolerance float64, want, got func() (*equiv.Run, error)) error {
	w, err := want()
	if err != nil {
		return fmt.Errorf("what it is compared with: %w", err)
	}
	g, err := got()
	if err != nil {
		return err
	}
	return equiv.CloseWeights(w, g, tolerance)
}

func train(inner string, m equiv.Model, p plan) (*equiv.Run, error) {
	all := map[string]any{"cluster.colocate_split_and_replicate": p.colocate, "pipeline.num_micro_batch": p.micro}
	maps.Copy(all, p.params)
	cfg, err := epl.NewConfig(all)
	if err != nil {
		return nil, err
	}
	start, err := equiv.Start(m)
	if err != nil {
		return nil, err
	}
	env, err := epl.Init(cfg, epl.WithInner(inner), epl.WithLocalDevices(p.devices), epl.WithPasses(p.passes))
	if err != nil {
		return nil, err
	}
	defer env.Close()
	opt := optimizer.StochasticGradientDescent().WithDecay(false)
	run, err := equiv.TrainFrom(start, env.Backend(), env.Dataset(equiv.Dataset{Batch: m.Batch}), m, epl.Optimizer(opt), steps)
	if err != nil {
		return nil, err
	}
	run.Store, err = run.Store.Clone() // its weights live on the devices of env
	return run, err
}
