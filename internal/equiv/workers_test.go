// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/rendezvous"
)

func TestSeveralWorkersGiveTheWeightsOfOneDeviceOnTheSameSamples(t *testing.T) {
	for _, w := range layouts {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "same weights") })
	}
}

func init() {
	parts["same weights"] = func(w *part) error {
		for _, m := range []Model{
			{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)},
			{"transformer", Transformer0, Models()[1].Loss, Tokens(2, 16, 32)},
			wideModels()[0],
		} {
			for _, micro := range []int{1, 3} {
				if err := w.sameWeights(m, micro, nil, 5); err != nil {
					return err
				}
			}
		}
		return nil
	}
	parts["random plans"] = func(w *part) error {
		for seed := range 6 {
			r := rand.New(rand.NewSource(int64(seed)))
			m := trainable()[r.Intn(len(trainable()))]
			params := map[string]any{
				"communication.max_splits":        1 + r.Intn(6),
				"communication.num_communicators": 1 + r.Intn(3),
				"communication.sparse_as_dense":   r.Intn(2) == 0,
			}
			if err := w.sameWeights(m, 1+r.Intn(4), params, 3); err != nil {
				return errors.Wrapf(err, "seed %d", seed)
			}
		}
		return nil
	}
}

// sameWeights trains over all workers, and on one device of the first worker alone.
func (w *part) sameWeights(m Model, micro int, params map[string]any, steps int) error {
	all := map[string]any{"pipeline.num_micro_batch": micro}
	maps.Copy(all, params)
	env, err := w.init(all)
	if err != nil {
		return err
	}
	defer env.Close()
	got, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), steps)
	if err != nil {
		return err
	}
	w.report(fmt.Sprintf("%s, %d micro-batches:", m.Name, micro), got)
	if !env.IsMain() {
		return nil
	}
	single := m
	single.Batch = Joined(m.Batch, env.Cluster().TotalDevices()*micro)
	want, err := TrainOn(Plain(), Dataset{single.Batch}, single, sgd(), steps)
	if err != nil {
		return err
	}
	return cmp.Or(CloseWeights(want, got, 1e-5), CloseLosses(want, got, 1e-4))
}

func TestRandomPlansOverSeveralWorkersGiveTheWeightsOfOneDevice(t *testing.T) {
	workers{num: 3, devices: 1, hosts: "a,b,a"}.agree(t, "random plans")
}

// Where every worker has one device, a job of several has the very bits of one worker with as many devices; otherwise sums
// are taken in another order.
func TestSeveralWorkersDoWhatSeveralDevicesOfOneDo(t *testing.T) {
	for _, w := range []workers{layouts[0], layouts[1], {num: 3, devices: 1, hosts: "a,b,c"}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "as one worker") })
	}
}

func init() {
	parts["as one worker"] = func(w *part) error {
		for _, m := range Models() {
			for _, o := range optimizers {
				if err := w.asOneWorker(m, o.make, nil); err != nil {
					return errors.Wrapf(err, "%s, %s", m.Name, o.name)
				}
			}
		}
		for _, params := range []map[string]any{
			{"communication.fp16": true},
			{"communication.fp16": true, "amp.level": "O1", "amp.loss_scale": 32768},
			{"communication.gradients_reduce_method": "sum"},
			{"communication.clip_after_allreduce": true},
			{"communication.max_splits": 1, "communication.num_communicators": 1},
		} {
			clipped := func() optimizer.Interface { return epl.ClipByGlobalNorm(sgd(), 0.1) }
			if err := w.asOneWorker(regression(), clipped, params); err != nil {
				return errors.Wrapf(err, "%v", params)
			}
		}
		for _, params := range []map[string]any{nil, {"communication.fp16": true}} {
			m := maskedLosses()[0].model(extras{mask: true, weights: true})
			if err := w.asOneWorker(m, sgd, params); err != nil {
				return errors.Wrapf(err, "masked, %v", params)
			}
		}
		return nil
	}
}

// asOneWorker trains over all workers, and over as many devices of the first worker alone.
func (w *part) asOneWorker(m Model, opt func() optimizer.Interface, params map[string]any) error {
	env, err := w.init(params)
	if err != nil {
		return err
	}
	defer env.Close()
	got, err := TrainOn(env.Backend(), env.Dataset(first(m, 3*env.Cluster().TotalDevices())), m, epl.Optimizer(opt()), 3)
	if err != nil {
		return err
	}
	w.report(m.Name+":", got)
	if !env.IsMain() {
		return nil
	}
	alone, err := w.alone(env.Cluster().TotalDevices(), params)
	if err != nil {
		return err
	}
	defer alone.Close()
	want, err := TrainOn(alone.Backend(), alone.Dataset(Dataset{m.Batch}), m, epl.Optimizer(opt()), 3)
	if err != nil {
		return err
	}
	if w.sameOrder(env) {
		return SameBits(want, got)
	}
	if params["communication.fp16"] != nil { // partial sums are rounded
		return CloseWeights(want, got, 1e-3)
	}
	return CloseLosses(want, got, 1e-3) // by loss, because of Adam
}

// alone makes EPL in this worker without the others.
func (w *part) alone(devices int, params map[string]any) (*epl.Env, error) {
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if clustered(name) {
			if err := os.Unsetenv(name); err != nil {
				return nil, err
			}
			defer os.Setenv(name, value)
		}
	}
	cfg, err := epl.NewConfig(w.params(params))
	if err != nil {
		return nil, err
	}
	return epl.Init(cfg, epl.WithLocalDevices(devices))
}

// clustered tells whether a variable makes this process one of several workers.
func clustered(name string) bool {
	switch name {
	case cluster.EnvNumWorkers, cluster.EnvWorkerIndex, cluster.EnvDevicesPerWorker, cluster.EnvWorkerHosts, rendezvous.EnvURL:
		return true
	}
	return strings.HasPrefix(name, "OMPI_COMM_WORLD_") || strings.HasPrefix(name, "PMI_")
}

// sameOrder tells whether sums are taken in the order of ranks: not where some are taken inside a worker or a host first.
func (w *part) sameOrder(env *epl.Env) bool {
	c := env.Cluster()
	hosts := map[string]bool{}
	for _, x := range c.Workers() {
		hosts[x.Host] = true
	}
	return os.Getenv(backendVariable) == "" && c.TotalDevices() == c.WorkerNum() && (len(hosts) == 1 || len(hosts) == c.WorkerNum())
}

// first returns the first n batches of a model.
func first(m Model, n int) train.Dataset {
	return custom(func(yield func(train.Batch, error) bool) {
		for i := range n {
			if !yield(batchOf(m, i), nil) {
				return
			}
		}
	})
}
