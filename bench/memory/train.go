// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/procmem"
)

const vocabulary = 256

// workload is the model and how it is trained.
type workload struct{ Layers, Width, Length, Batch, Devices, Steps int }

// job is a row to be trained.
type job struct {
	Workload workload
	Settings map[string]any
	Limit    int64
}

func (j job) text() string {
	var words []string
	for key, value := range j.Settings {
		words = append(words, fmt.Sprintf("`%s=%v`", key, value))
	}
	if len(words) == 0 {
		return "plain"
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// train trains the row. A setting that this version does not know, and a plan that does not fit, are rows, too.
func (j job) train() Row {
	row := Row{Settings: j.text()}
	params := map[string]any{"cluster.device_memory": j.Limit}
	for key, value := range j.Settings {
		params[key] = value
	}
	cfg, err := epl.NewConfig(params)
	if err != nil {
		row.Refused = firstLine(err)
		return row
	}
	env, err := epl.Init(cfg, epl.WithLocalDevices(j.Workload.Devices))
	if err != nil {
		row.Refused = firstLine(err)
		return row
	}
	defer env.Close()
	before := procmem.Peak()
	err = j.Workload.train(env, &row)
	for _, d := range env.Predicted().Devices {
		if d.PeakBytes > row.Predicted {
			row.Predicted, row.By = d.PeakBytes, d.Peak
		}
	}
	if err != nil {
		row.Refused = firstLine(err)
		if strings.Contains(err.Error(), "cluster.device_memory") {
			row.Refused = "does not fit"
		}
		return row
	}
	for _, d := range env.Stats().Devices {
		row.Metered = max(row.Metered, d.PeakBytes)
	}
	row.Process = max(procmem.Peak()-before, 0)
	return row
}

func (w workload) train(env *epl.Env, row *Row) error {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	build := func(scope *model.Scope, x *Node) *Node {
		return transformer.New(scope).WithVocabSize(vocabulary).WithEmbedDim(w.Width).WithNumLayers(w.Layers).WithNumHeads(4).WithHeadDim(w.Width/4).
			WithMaxPosEmbed(w.Length).WithCausalMask(true).Logits(x, transformer.CallOptions{})
	}
	trainer := train.NewTrainer(env.Backend(), store, build, loss.SparseCategoricalCrossEntropyLogits, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
	loop := train.NewLoop(trainer)
	var times []time.Duration
	last := time.Now()
	loop.OnStep("time", 0, func(loop *train.Loop, metrics []*tensors.Tensor) error {
		row.Loss = float64(tensors.ToScalar[float32](metrics[0]))
		if loop.LoopStep == 0 {
			env.Stats() // programs that made the first values
		} else {
			times = append(times, time.Since(last))
		}
		last = time.Now()
		return nil
	})
	if _, err := loop.RunSteps(env.Dataset(tokens(w)), w.Steps); err != nil {
		return err
	}
	slices.Sort(times)
	if len(times) > 0 {
		row.StepMS = times[len(times)/2].Seconds() * 1000
	}
	return nil
}

// tokens yields samples without end, each token followed by the next number.
type tokens workload

// Name implements train.Dataset.
func (t tokens) Name() string { return "tokens" }

// Iter implements train.Dataset.
func (t tokens) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		r := rand.New(rand.NewPCG(1, 2))
		for {
			in, out := make([]int32, t.Batch*t.Length), make([]int32, t.Batch*t.Length)
			for i := range in {
				in[i] = r.Int32N(vocabulary)
				out[i] = (in[i] + 1) % vocabulary
			}
			if !yield(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(in, t.Batch, t.Length)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(out, t.Batch, t.Length, 1)}}, nil) {
				return
			}
		}
	}
}

func firstLine(err error) string {
	text := err.Error()
	if i := strings.Index(text, "epl: "); i >= 0 {
		text = text[i+len("epl: "):]
	}
	line, _, _ := strings.Cut(text, "\n")
	return line
}
