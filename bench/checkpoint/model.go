// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"strings"
	"time"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/bench/meeting"
	"github.com/easyparallel/epl/internal/procmem"
)

// depth is how many layers there are, of which each has as much of the state.
const depth = 5

// width of the layers: Adam has two numbers for each weight.
func (j job) width() int {
	w := 16
	for depth*(w+16)*(w+16)*12 <= int(j.State) {
		w += 16
	}
	return w
}

// trainee is what is trained.
type trainee struct {
	env   *epl.Env
	saver *epl.Checkpoint
	loop  *train.Loop
	data  train.Dataset
	bytes int64 // of the state
}

// trainer makes everything up to the loop.
func (j job) trainer(params map[string]any) (*trainee, error) {
	if params == nil {
		params = map[string]any{"cluster.colocate_split_and_replicate": true}
		if j.Zero != "" {
			params["zero.level"] = j.Zero
		}
	}
	cfg, err := epl.NewConfig(params)
	if err != nil {
		return nil, err
	}
	var opts []epl.Option
	if !j.Loads {
		opts = append(opts, epl.WithLocalDevices(j.Devices))
		if j.Inner != "" {
			opts = append(opts, epl.WithInner(j.Inner))
		}
	}
	env, err := epl.Init(cfg, opts...)
	if err != nil {
		return nil, err
	}
	store := model.NewStore()
	saving := env.Checkpoints(store).BatchFromConfig().DataFromStart()
	if !j.Copied {
		saving.Dir(j.Dir).EverySteps(1)
	}
	saver, err := saving.Done()
	if err != nil {
		env.Close()
		return nil, err
	}
	width := j.width()
	build := func(scope *model.Scope, x *Node) *Node {
		for i := range depth {
			epl.With(x, epl.Replicate(1, fmt.Sprintf("layer_%d", i)), func() {
				x = activation.Relu(layers.Dense(scope.In("layer_%d", i), x, false, width))
			})
		}
		return x
	}
	loop := train.NewLoop(train.NewTrainer(env.Backend(), store, build, loss.MeanSquaredError, epl.Optimizer(optimizer.Adam().Done()), nil, nil))
	return &trainee{env, saver, loop, env.Dataset(batches{j.Batch, width}), int64(12 * depth * width * width)}, nil
}

// batches are all the same.
type batches struct{ samples, width int }

// Name implements train.Dataset.
func (b batches) Name() string { return "batches" }

// Iter implements train.Dataset.
func (b batches) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		x := make([]float32, b.samples*b.width)
		for i := range x {
			x[i] = float32(i%17)/17 - 0.5
		}
		for {
			batch := train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, b.samples, b.width)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, b.samples, b.width)}}
			if !yield(batch, nil) {
				return
			}
		}
	}
}

// load loads the checkpoint as one of several workers, each of which has a part of all under ZeRO v2, and prints what that took.
func (j job) load() error {
	before := procmem.Now()
	start := time.Now()
	t, err := j.trainer(map[string]any{"cluster.colocate_split_and_replicate": true, "zero.level": "v2"})
	if err != nil {
		return err
	}
	defer t.env.Close()
	done := time.Since(start)
	disk, peak := procmem.Disk(), procmem.Peak()-before
	if err := forget(j.Dir); err != nil {
		return err
	}
	if _, err := t.loop.RunSteps(t.data, 1); err != nil {
		return err
	}
	fmt.Printf("%.2f s | %.0f MB | %.0f MB | %.0f MB | %.0f MB | %.0f MB |\n", done.Seconds(), float64(disk)/1e6, float64(t.saver.BytesRead())/1e6, float64(procmem.Disk())/1e6, float64(peak)/1e6, float64(procmem.Peak()-before)/1e6)
	return nil
}

// loads lets workers load, and prints what each took.
func (j job) loads() error {
	fmt.Println("\n| workers, ZeRO v2 | worker | until it is verified | from the disk until then | read, with the parts of its devices | from the disk | peak memory until it is verified | and with a step |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, n := range j.Workers {
		if err := forget(j.Dir); err != nil {
			return err
		}
		met, err := meeting.New(n)
		if err != nil {
			return err
		}
		defer met.Close()
		outs, cmds := make([]bytes.Buffer, n), make([]*exec.Cmd, n)
		for i := range n {
			cmd := exec.Command(os.Args[0], "-load", "-dir", j.Dir, "-state", fmt.Sprint(j.State), "-batch", "1")
			cmd.Env = append(os.Environ(), met.Environment(i, 1)...)
			cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
			if err := cmd.Start(); err != nil {
				return err
			}
			cmds[i] = cmd
		}
		for i, cmd := range cmds {
			if err := cmd.Wait(); err != nil {
				return fmt.Errorf("worker %d of %d: %w\n%s", i, n, err, outs[i].String())
			}
			lines := strings.Split(strings.TrimSpace(outs[i].String()), "\n")
			fmt.Printf("| %d | %d | %s\n", n, i, lines[len(lines)-1])
		}
	}
	return nil
}
