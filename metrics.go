// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"fmt"
	"reflect"
	"time"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/metrics"
)

// Metrics tells sinks how a training goes: see [Env.Metrics].
type Metrics struct {
	env        *Env
	stats      func() []DeviceStats
	sinks      []metrics.Sink
	every      int
	histograms int
	gradients  bool // histograms have them, too
	tokens     int

	last     time.Time // when the last record was made, and at which step
	lastStep int64
	told     bool  // a sink has had a record
	failed   error // the first error of a sink
}

// Metrics writes the training metrics of a loop to sinks, on the first worker: the loss and whatever metrics the trainer has, by their names, and what EPL knows:
//
//	epl/step seconds             a step, the mean since the last record
//	epl/samples per second       of all workers, by [Env.GlobalBatch]
//	epl/tokens per second        the same, if [Metrics.Tokens] says what a sample has
//	epl/memory bytes, device 0   the most that lived on a device of this worker, since the last record
//	epl/sent bytes, device 0     what it sent in a step, through the host
//
// Sinks are files of JSON lines or of TensorBoard, Prometheus, or a program's own:
//
//	m := env.Metrics(metrics.JSONL("run/metrics.jsonl"), metrics.TensorBoard("run")).Every(10)
//	defer m.Close()
//	loop.OnStep("metrics", 100, m.OnStep)
//
// On other workers it does nothing. If a sink cannot take its first record, training ends with that error; after that, what a sink cannot take is lost, which is logged once, and training goes on.
func (e *Env) Metrics(sinks ...metrics.Sink) *Metrics {
	return &Metrics{env: e, stats: e.runner.Watch(), sinks: sinks, every: 10}
}

// Every sets after how many steps there is a record; it is 10 unless it is said. A record reads the metrics of its step, so that a GPU waits for the host then.
func (m *Metrics) Every(steps int) *Metrics {
	m.every = steps
	return m
}

// Histograms adds how the values of trained variables are distributed, after so many steps, to sinks that take it, such as TensorBoard. All of them are read for that, from wherever they are.
func (m *Metrics) Histograms(steps int) *Metrics {
	m.histograms = steps
	return m
}

// Gradients adds the gradients of that step to histograms, as "gradients" with the path of the variable: reduced over model replicas and micro-batches, and not yet clipped by
// the norm of the whole. Call it before the first step, on all workers. Programs keep a copy of the gradients then, with the state of the optimizer.
func (m *Metrics) Gradients() *Metrics {
	m.gradients = true
	m.env.backend.KeepGradients.Store(true)
	return m
}

// Tokens says how many tokens a sample has: "epl/tokens per second" is among the values then, and on the dashboard.
func (m *Metrics) Tokens(perSample int) *Metrics {
	m.tokens = perSample
	return m
}

// OnStep is what the loop is to call after each step. All workers give it to their loops.
func (m *Metrics) OnStep(loop *train.Loop, values []*tensors.Tensor) error {
	if m.every < 1 || m.histograms < 0 {
		return errors.Errorf("epl: Metrics: Every(%d), Histograms(%d): write a number of steps", m.every, m.histograms)
	}
	if m.tokens < 0 {
		return errors.Errorf("epl: Metrics: Tokens(%d): write how many tokens a sample has", m.tokens)
	}
	if w := m.env.watcher; w != nil && w.names == nil {
		names := []string{}
		for _, x := range loop.Trainer.TrainMetrics() {
			names = append(names, x.Name())
		}
		w.named(names, m.tokens)
	}
	if !m.env.IsMain() || len(m.sinks) == 0 {
		return nil
	}
	step := int64(loop.LoopStep) + 1
	if step%int64(m.every) == 0 || !m.told {
		if err := m.record(loop, step, values); err != nil {
			return err
		}
	}
	if m.histograms > 0 && step%int64(m.histograms) == 0 {
		return m.distributions(loop, step)
	}
	return nil
}

// record tells the sinks of a step.
func (m *Metrics) record(loop *train.Loop, step int64, values []*tensors.Tensor) error {
	r := metrics.Record{Step: step, Time: time.Now(), Values: map[string]float64{}}
	for i, x := range loop.Trainer.TrainMetrics() {
		if i >= len(values) {
			break
		}
		if value, err := scalar(values[i]); err == nil { // others are not for curves
			r.Values[x.Name()] = value
		}
	}
	for i, d := range m.stats() {
		if d.Runs == 0 {
			continue
		}
		sent := int64(0)
		for _, n := range d.Sent {
			sent += n
		}
		r.Values[fmt.Sprintf("epl/memory bytes, device %d", i)] = float64(d.PeakBytes)
		r.Values[fmt.Sprintf("epl/sent bytes, device %d", i)] = float64(sent) / float64(d.Runs)
	}
	if steps := step - m.lastStep; m.told && steps > 0 {
		seconds := r.Time.Sub(m.last).Seconds() / float64(steps)
		r.Values["epl/step seconds"], r.Values["epl/samples per second"] = seconds, float64(m.env.GlobalBatch())/seconds
		if m.tokens > 0 {
			r.Values["epl/tokens per second"] = r.Values["epl/samples per second"] * float64(m.tokens)
		}
	}
	m.last, m.lastStep = r.Time, step
	err := m.each(func(s metrics.Sink) error { return s.Write(r) })
	m.told = true
	return err
}

// distributions tells the sinks that take it how the values of variables, and of gradients, are distributed.
func (m *Metrics) distributions(loop *train.Loop, step int64) error {
	now, gradients := time.Now(), 0
	for v := range loop.Trainer.Store().IterVariables() {
		name := v.Path()
		if of := gradientOf(name); of != "" && m.gradients {
			name = "gradients" + of
			gradients++
		} else if !v.Trainable || !v.Shape().DType.IsFloat() {
			continue
		}
		if err := m.distribution(v, name, step, now); err != nil {
			return err
		}
	}
	if m.gradients && gradients == 0 {
		return errors.New("epl: Metrics: Gradients() was called after the training program was built: call it before the first step")
	}
	return nil
}

// distribution tells the sinks of one variable.
func (m *Metrics) distribution(v *model.Variable, name string, step int64, now time.Time) error {
	t, err := v.Value()
	if err != nil {
		return errors.WithMessagef(err, "epl: Metrics: variable %q", v.Path())
	}
	var h metrics.Histogram
	if err := eachNumber(t, h.Add); err != nil {
		return errors.WithMessagef(err, "epl: Metrics: variable %q", v.Path())
	}
	return m.each(func(s metrics.Sink) error {
		if x, ok := s.(metrics.HistogramSink); ok {
			return x.WriteHistogram(step, now, name, &h)
		}
		return nil
	})
}

// eachNumber calls a function for every number of a tensor.
func eachNumber(t *tensors.Tensor, f func(float64)) error {
	return t.ConstFlatData(func(flat any) {
		switch all := flat.(type) {
		case []float32:
			for _, x := range all {
				f(float64(x))
			}
		default:
			list := reflect.ValueOf(flat)
			for i := range list.Len() {
				f(shapes.ConvertTo[float64](list.Index(i).Interface()))
			}
		}
	})
}

// each calls all sinks. Once one of them has had a record, errors are logged, and only once.
func (m *Metrics) each(f func(metrics.Sink) error) error {
	for _, s := range m.sinks {
		err := f(s)
		if err != nil && !m.told {
			return err
		}
		if err != nil && m.failed == nil {
			m.failed = err
			warn("metrics are lost: %v; training goes on", err)
		}
	}
	return nil
}

// Close closes the sinks. It returns the first error of any of them.
func (m *Metrics) Close() error {
	err := m.failed
	for _, s := range m.sinks {
		if e := s.Close(); err == nil {
			err = e
		}
	}
	return err
}
