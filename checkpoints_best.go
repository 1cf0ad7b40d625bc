// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"math"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
)

// KeepLowest lets the n checkpoints with the lowest value of a metric stay, besides the newest of [CheckpointBuilder.Keep]. The metric is one of the
// trainer's training metrics, by its name or short name, of the step that is saved by [Checkpoint.OnStep]; or one that the program gives to
// [Checkpoint.SetMetric], such as the loss of an evaluation. It may be said of several metrics.
func (b *CheckpointBuilder) KeepLowest(n int, metric string) *CheckpointBuilder {
	b.best = append(b.best, checkpoint.Best{Metric: metric, N: n})
	return b
}

// KeepHighest is [CheckpointBuilder.KeepLowest] for metrics that are to be high, such as an accuracy.
func (b *CheckpointBuilder) KeepHighest(n int, metric string) *CheckpointBuilder {
	b.best = append(b.best, checkpoint.Best{Metric: metric, N: n, Highest: true})
	return b
}

// checkBest returns what is wrong with what KeepLowest and KeepHighest were given.
func (b *CheckpointBuilder) checkBest() error {
	seen := map[string]bool{}
	for _, r := range b.best {
		switch {
		case r.N < 1:
			return errors.Errorf("epl: checkpoints at %s: %s: at least 1 must stay", b.at, r)
		case r.Metric == "":
			return errors.Errorf("epl: checkpoints at %s: %s: give it the name of a metric", b.at, r)
		case seen[r.Metric]:
			return errors.Errorf("epl: checkpoints at %s: %s: the metric %q is named twice", b.at, r, r.Metric)
		}
		seen[r.Metric] = true
	}
	return nil
}

// SetMetric gives the next checkpoint the value of a metric that [CheckpointBuilder.KeepLowest] or [CheckpointBuilder.KeepHighest] names, such as that
// of an evaluation. The first worker's counts. A checkpoint without a value, or with NaN, is not one of the best.
//
//	saver.SetMetric("dev F1", f1)
//	err = saver.Save()
func (c *Checkpoint) SetMetric(metric string, value float64) error {
	var known []string
	for _, r := range c.best {
		known = append(known, r.Metric)
	}
	if !slices.Contains(known, metric) {
		return errors.Errorf("epl: SetMetric(%q, %v): no KeepLowest or KeepHighest names this metric; they name %q", metric, value, known)
	}
	if c.metrics == nil {
		c.metrics = map[string]float64{}
	}
	c.metrics[metric] = value
	return nil
}

// takeMetrics takes the metrics of a step that the rules name, and the program has not set.
func (c *Checkpoint) takeMetrics(loop *train.Loop, values []*tensors.Tensor) error {
	if len(c.best) == 0 || !c.env.IsMain() {
		return nil
	}
	var names []string
	for i, m := range loop.Trainer.TrainMetrics() {
		names = append(names, m.Name())
		r := slices.IndexFunc(c.best, func(r checkpoint.Best) bool { return r.Metric == m.Name() || r.Metric == m.ShortName() })
		if r < 0 || i >= len(values) {
			continue
		}
		if _, set := c.metrics[c.best[r].Metric]; set {
			continue
		}
		value, err := scalar(values[i])
		if err != nil {
			return errors.WithMessagef(err, "epl: checkpoints: the metric %q", m.Name())
		}
		if err := c.SetMetric(c.best[r].Metric, value); err != nil {
			return err
		}
	}
	for _, r := range c.best {
		if _, set := c.metrics[r.Metric]; !set && !c.missed {
			c.missed = true
			warn("the checkpoint of step %d has no value of %s: it is no training metric, which are %s, and was not given to SetMetric before this save. "+
				"Checkpoints without a value are not kept for it", loop.LoopStep+1, r, strings.Join(names, ", "))
		}
	}
	return nil
}

// scalar is a metric as a number.
func scalar(t *tensors.Tensor) (float64, error) {
	if !t.Shape().IsScalar() || !(t.DType().IsFloat() || t.DType().IsInt()) {
		return 0, errors.Errorf("it is %s, and must be one number", t.Shape())
	}
	x, err := t.ValueSafe()
	if err != nil {
		return 0, err
	}
	return shapes.ConvertTo[float64](x), nil
}

// numbers are the metrics that can be compared, and written down.
func numbers(metrics map[string]float64) map[string]float64 {
	all := map[string]float64{}
	for name, x := range metrics {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			all[name] = x
		}
	}
	return all
}
