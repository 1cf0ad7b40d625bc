// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build linux

package equiv

import (
	"os"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/comm/shm"
)

// Large tensors lie in memory that workers share, and are reduced where they are. Whether they can is up to the system.
func TestWorkersReduceLargeTensorsWhereTheyAre(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "large tensors")
	workers{num: 2, devices: 2}.agree(t, "large tensors of several devices")
}

func TestWorkersTrainWithoutSharedMemoryForLargeTensors(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "no room for large tensors")
}

// wideWeights has weights of 324 KB.
func wideWeights() Model {
	return Model{"mlp", MLP(2, 288, false), Models()[0].Loss, Regression(8, 8)}
}

func init() {
	adam := func() optimizer.Interface { return optimizer.Adam().Done() }
	parts["large tensors"] = func(w *part) error { return w.large(2) }
	parts["large tensors of several devices"] = parts["large tensors"]
	parts["no room for large tensors"] = func(w *part) error {
		shm.Reserve = func(fd int, mode uint32, from, bytes int64) error {
			if bytes == 2<<20 { // of the heap; those for messages are of other sizes
				return unix.ENOSPC
			}
			return unix.Fallocate(fd, mode, from, bytes)
		}
		if err := w.asOneWorker(wideWeights(), adam, nil); err != nil {
			return err
		}
		return w.large(0)
	}
}

// large trains with large tensors and tells whether other workers' memory is mapped so often, and whether all is given back.
func (w *part) large(heaps int) error {
	if err := w.asOneWorker(wideWeights(), func() optimizer.Interface { return optimizer.Adam().Done() }, nil); err != nil {
		return err
	}
	env, err := w.init(nil)
	if err != nil {
		return err
	}
	defer env.Close()
	run, err := TrainOn(env.Backend(), env.Dataset(Dataset{wideWeights().Batch}), wideWeights(), epl.Optimizer(sgd()), 3)
	if err != nil {
		return err
	}
	if n := heapsMapped(); n != heaps {
		return errors.Errorf("%d pieces of heaps are mapped in training, not %d", n, heaps)
	}
	w.report("large tensors:", run)
	if err := env.Close(); err != nil {
		return err
	}
	if n := new(comm.SharedMemory).InUse(); n != 0 {
		return errors.Errorf("%d bytes of the heap are in use after the training", n)
	}
	if n := heapsMapped(); n > 1 {
		return errors.Errorf("%d pieces of heaps are mapped after the training", n)
	}
	return nil
}

// heapsMapped is how many pieces of heaps this process has mapped, its own included.
func heapsMapped() int {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	return strings.Count(string(maps), "memfd:epl-heap")
}
