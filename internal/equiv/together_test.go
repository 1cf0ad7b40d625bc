// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
)

// Model replicas have devices of several workers, which evaluate and predict together: each has the metrics of one device.
func TestWorkersEvaluateTogether(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1}, {num: 2, devices: 2, hosts: "a,b"}, {num: 4, devices: 1}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "together") })
	}
}

func init() {
	parts["together"] = func(w *part) error {
		log.SetOutput(io.Discard)
		env, err := w.init(nil)
		if err != nil {
			return err
		}
		n := env.Cluster().TotalDevices()
		if err := env.Close(); err != nil {
			return err
		}
		for i, m := range PartedModels() {
			p := m.whole(n, 1, 1+i%2)
			switch {
			case m.PerInstance || i%2 == env.Cluster().WorkerNum()/4: // every layout has half of them
				continue
			case n == 4 && i%3 == 1:
				p = m.whole(2, 2, 1) // of workers with one device, two model replicas: batches are dealt to them
			case n == 4 && i%3 == 2 && m.Most > 1 && !m.Colocated:
				p = splitPlan{parts: []int{-1, 3}, replicas: 1, micro: 2, schedule: strategies[i%4]}
			}
			params := map[string]any{}
			if i%4 == 0 && p.replicas > 1 {
				params["zero.level"] = "v2"
			}
			if err := w.togetherAlike(m.under(p), p, n/p.replicas, params); err != nil {
				return fmt.Errorf("%s, %s: %w", m.Name, p, err)
			}
		}
		for i, m := range StagedModels() {
			if i%3 != n%3 {
				continue
			}
			stages := min(n, 2+i%2)
			p := splitPlan{parts: slices.Repeat([]int{-1}, stages), replicas: 1, micro: 2}
			if n%stages != 0 {
				continue
			}
			x := m
			x.Build = func(int) func(scope *model.Scope, inputs []*Node) []*Node { return m.Build(stages) }
			if err := w.togetherAlike(x, p, stages, map[string]any{"cluster.colocate_split_and_replicate": false}); err != nil {
				return fmt.Errorf("%s in %d stages: %w", m.Name, stages, err)
			}
		}
		return nil
	}
}

// togetherAlike trains on model replicas of so many devices, and compares evaluation and prediction with one device: on the same data for
// all workers, and on data of each.
func (w *part) togetherAlike(m Staged, p splitPlan, devices int, params map[string]any) error {
	all := p.params(params)
	all["pipeline.num_micro_batch"] = p.micro
	env, err := w.init(all)
	if err != nil {
		return err
	}
	defer env.Close()
	run, err := m.train(env.Backend(), 0, env.Dataset(Dataset{m.Batch}), epl.Optimizer(sgd()), 2)
	if err != nil {
		return err
	}
	env.Stats()
	batch := tensorsRows(m.Batch)
	sizes := []int{batch, batch, batch, max(batch/2, 1)}
	total := 3*batch + max(batch/2, 1)
	if err := m.evaluateAlike(env, run.Store, 0, samplesOf(m.Batch, total), sizes...); err != nil {
		return err
	}
	mine := func(step int) (in, labels []*tensors.Tensor) { return m.Batch(step + 10*env.Cluster().WorkerIndex()) }
	if err := m.evaluateAlike(env, run.Store, 0, samplesOf(mine, total), sizes...); err != nil {
		return fmt.Errorf("data of each worker: %w", err)
	}
	var text strings.Builder
	if err := env.Explain(&text); err != nil {
		return err
	}
	spans := devices > len(env.Cluster().LocalDevices())
	if words := strings.Join(strings.Fields(text.String()), " "); strings.Contains(words, "all workers run it together") != spans {
		return fmt.Errorf("model replicas have devices of several workers: %v, but\n%s", spans, text.String())
	}
	if os.Getenv("GOMLX_BACKEND") == fake && spans && p.parts[0] == devices && !strings.Contains(text.String(), "through the host") {
		if n := strings.Count(strings.Join(strings.Fields(text.String()), " "), "together, with collectives inside"); n < 2 {
			return fmt.Errorf("%d programs have collectives inside:\n%s", n, text.String())
		}
		for _, d := range env.Stats().Devices {
			if bytes := d.Sent["all-reduce"]; bytes > 0 { // the host sends batches and results
				return fmt.Errorf("%d bytes are reduced by the host", bytes)
			}
		}
	}
	fmt.Println(m.Name, p, "ok")
	return nil
}

func tensorsRows(batch func(int) (in, labels []*tensors.Tensor)) int {
	in, _ := batch(0)
	return in[0].Shape().Dimensions[0]
}

// No worker has room for the model: all evaluate and predict together. One that tries alone is refused, and the job goes on.
func TestWorkersEvaluateWhatNoneCanHold(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "larger than a worker")
}

func init() {
	parts["larger than a worker"] = func(w *part) error {
		for name, m := range map[string]Staged{"split": large(epl.Split(2, "a"), epl.Split(2, "b"))} {
			env, err := w.init(map[string]any{"cluster.device_memory": largeLimit, "cluster.colocate_split_and_replicate": name == "split"})
			if err != nil {
				return err
			}
			defer env.Close()
			run, err := m.train(env.Backend(), 0, env.Dataset(Dataset{m.Batch}), epl.Optimizer(sgd()), 2)
			if err != nil {
				return err
			}
			env.Stats()
			if err := m.evaluateAlike(env, run.Store, 0, samplesOf(m.Batch, 10), 4, 4, 2); err != nil {
				return err
			}
			for d, s := range env.Stats().Devices {
				if s.PeakBytes > largeLimit {
					return fmt.Errorf("device %d had %d bytes", d, s.PeakBytes)
				}
			}
			if env.IsMain() {
				_, err := train.NewTrainer(env.Backend(), run.Store, m.Build(0), m.Loss, sgd(), nil, spread()).Eval(env.Dataset(finite{m.Batch, 2}))
				if err == nil || !strings.Contains(err.Error(), "worker 0 calls it alone") {
					return fmt.Errorf("a worker that evaluates alone what it cannot hold gets the error %v", err)
				}
			}
			if _, err := m.train(env.Backend(), 0, env.Dataset(Dataset{m.Batch}), epl.Optimizer(sgd()), 1); err != nil {
				return err
			}
			fmt.Println(name, "ok")
		}
		return nil
	}
}

// What depends on variables that the program updates, such as the state of random numbers, is computed batch by batch, with the numbers
// of one device; two programs may run on the same batch, and training may come in between.
func TestWorkersDrawRandomNumbersTogether(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1}, {num: 4, devices: 1, hosts: "a,b,a,b"}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "random numbers together") })
	}
}

func init() {
	parts["random numbers together"] = func(w *part) error {
		p := splitPlan{parts: []int{2}, colocate: true, micro: 1}
		m := partedModel("mlp").under(p)
		env, err := w.init(p.params(nil))
		if err != nil {
			return err
		}
		defer env.Close()
		run, err := m.train(env.Backend(), 0, env.Dataset(Dataset{m.Batch}), epl.Optimizer(sgd()), 2)
		if err != nil {
			return err
		}
		copied, err := run.Store.Clone()
		if err != nil {
			return err
		}
		var seen [2][]float64
		for k, store := range []*model.Store{copied, run.Store} {
			backend, wrap := Plain(), func(ds train.Dataset) train.Dataset { return ds }
			if k == 1 {
				backend, wrap = env.Backend(), env.Dataset
			}
			noisy := model.MustNewExec(backend, store, func(scope *model.Scope, inputs []*Node) []*Node {
				scope.Store().SetTraining(inputs[0].Graph(), false)
				x := Add(inputs[0], scope.Store().RandomNormal(inputs[0].Graph(), inputs[0].Shape()))
				return m.Build(0)(scope, []*Node{x})[:1]
			})
			plain := model.MustNewExec(backend, store, func(scope *model.Scope, inputs []*Node) []*Node {
				scope.Store().SetTraining(inputs[0].Graph(), false)
				return m.Build(0)(scope, inputs)[:1]
			})
			for batch, err := range wrap(finite{m.Batch, 5}).Iter() {
				if err != nil {
					return err
				}
				for _, exec := range []*model.Exec{plain, noisy, plain} {
					out, err := exec.Call(batch.Inputs[0])
					if err != nil {
						return err
					}
					seen[k] = append(seen[k], numbers(out[0])...)
				}
			}
		}
		if d, n := distance(seen[0], seen[1]); len(seen[0]) != len(seen[1]) || !(d <= 1e-5*n) {
			return fmt.Errorf("results differ by %g at a norm of %g", d, n)
		}
		fmt.Println("seen", seen[1][:3])
		return nil
	}
}
