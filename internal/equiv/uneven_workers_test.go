// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"io"
	"log"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
)

// All workers read the same batches, and so agree on where a step ends.
func TestASmallerLastBatchOverSeveralWorkers(t *testing.T) {
	for _, w := range layouts[:3] {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "smaller last batch") })
	}
}

func init() {
	parts["smaller last batch"] = func(w *part) error {
		log.SetOutput(io.Discard)
		for _, c := range []struct {
			stages []int // devices of each; none: not annotated
			params map[string]any
		}{
			{nil, map[string]any{"pipeline.num_micro_batch": 1}},
			{nil, map[string]any{"pipeline.num_micro_batch": 2}},
			{nil, map[string]any{"pipeline.num_micro_batch": 2, "zero.level": "v2"}},
			{[]int{1, 1}, map[string]any{"pipeline.num_micro_batch": 3, "cluster.colocate_split_and_replicate": false}},
			{[]int{2}, map[string]any{"pipeline.num_micro_batch": 3}}, // more devices than the last batch has samples
		} {
			m, devices := regression(), 1
			if c.stages != nil {
				m.Build, devices = wide(c.stages...), 2
			}
			env, err := w.init(c.params)
			if err != nil {
				return err
			}
			defer env.Close()
			all := samplesOf(m.Batch, 22)
			got, err := oneEpoch(env, m, all.inBatches(batchesOf(22, 3)...))
			if err != nil {
				return err
			}
			w.report(fmt.Sprint(c), got)
			k := env.Cluster().TotalDevices() / devices * c.params["pipeline.num_micro_batch"].(int)
			want, err := oneEpoch(nil, m, all.inBatches(stepsOf(k, batchesOf(22, 3)...)...))
			if err != nil {
				return err
			}
			if err := CloseWeights(want, got, 1e-5); err != nil {
				return fmt.Errorf("%v: %w", c, err)
			}
		}
		return nil
	}
}

func oneEpoch(env *epl.Env, m Model, ds train.Dataset) (*Run, error) {
	backend, opt := Plain(), sgd()
	if env != nil {
		backend, opt, ds = env.Backend(), epl.Optimizer(opt), env.Dataset(ds)
	}
	run := &Run{Store: newStore()}
	loop := train.NewLoop(train.NewTrainer(backend, run.Store, m.Build, m.Loss, opt, nil, nil))
	_, err := loop.RunEpochs(ds, 1)
	return run, err
}

// streams are the sizes of the batches of workers with data of their own, and where they differ.
var streams = []struct {
	name  string
	sizes func(worker int) []int
}{
	{"as many", func(int) []int { return []int{3, 3, 3, 3, 2} }},
	{"one more", func(w int) []int { return batchesOf(3*(3+w)+1, 3) }},
	{"one is even", func(w int) []int { return batchesOf(9+w%2, 3) }},
	{"other ends", func(w int) []int { return batchesOf(11-w, 4-w%2) }},
	{"other shapes from the start", func(w int) []int { return []int{1 + w, 2, 1 + w, 2, 2} }},
	{"never the same", func(w int) []int { return []int{1 + w, 1 + w, 1 + w} }},
	{"one runs on", func(w int) []int {
		if w == 0 {
			return []int{2, 3}
		}
		return []int{3, 3, 3, 3, 3, 3, 3, 3}
	}},
}

// With io.slicing the smaller batches of workers come at different steps. No sample is lost, and no batch waits for ever.
func TestBatchesOfAnotherShapeOfWorkersWithDataOfTheirOwn(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1}, {num: 2, devices: 2, hosts: "a,b"}, {num: 3, devices: 1}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "uneven data of their own") })
	}
}

func init() {
	parts["uneven data of their own"] = func(w *part) error {
		log.SetOutput(io.Discard)
		m := regression()
		for i, s := range streams {
			micro := 1 + i%2
			env, err := w.init(map[string]any{"io.slicing": true, "pipeline.num_micro_batch": micro})
			if err != nil {
				return err
			}
			defer env.Close()
			of := func(worker int) samples {
				total := 0
				for _, n := range s.sizes(worker) {
					total += n
				}
				return samplesOf(func(step int) (in, labels []*tensors.Tensor) { return m.Batch(1000*worker + step) }, total)
			}
			mine := env.Cluster().WorkerIndex()
			got, err := oneEpoch(env, m, of(mine).inBatches(s.sizes(mine)...))
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			w.report(s.name+":", got)
			want, err := oneEpoch(nil, m, custom(func(yield func(train.Batch, error) bool) {
				taken := make([]int, env.Cluster().WorkerNum()) // samples
				for _, step := range takeTurns(env.Cluster().WorkerNum(), len(env.Cluster().LocalDevices())*micro, s.sizes) {
					var ins, labels [][]*tensors.Tensor
					for worker, n := range step {
						if n > 0 {
							b := of(worker).rows(taken[worker], taken[worker]+n)
							ins, labels = append(ins, b.inputs), append(labels, b.labels)
							taken[worker] += n
						}
					}
					if !yield(train.Batch{Inputs: concat(ins), Labels: concat(labels)}, nil) {
						return
					}
				}
			}))
			if err != nil {
				return err
			}
			if err := closeTrainable(want, got); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		return nil
	}
}

// takeTurns says how many samples each worker gives to every step: who has waited longest says the shape, then who has the larger
// batch, then the first.
func takeTurns(num, perStep int, sizes func(worker int) []int) (steps [][]int) {
	left, waited := make([][]int, num), make([]int, num)
	for w := range left {
		left[w] = sizes(w)
	}
	for {
		chosen := -1
		for w := range left {
			if len(left[w]) > 0 && (chosen < 0 || waited[w] > waited[chosen] || waited[w] == waited[chosen] && left[w][0] > left[chosen][0]) {
				chosen = w
			}
		}
		if chosen < 0 {
			return steps
		}
		size := left[chosen][0]
		step := make([]int, num)
		for w := range left {
			waited[w]++
			for range perStep {
				if len(left[w]) > 0 && left[w][0] == size {
					step[w] += size
					left[w], waited[w] = left[w][1:], 0
				}
			}
		}
		steps = append(steps, step)
	}
}
