// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"iter"
	"sync"
	"time"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/internal/equiv"
)

// parallelRows compare two virtual devices with plain GoMLX on the same total batch.
func parallelRows() []Row {
	mlp := func(batch int) problem {
		return problem{mlp(2048, 2048, 1024), loss.MeanSquaredError, vectors(batch, 1024)}
	}
	lm := func(batch int) problem {
		return problem{wideLanguageModel, loss.SparseCategoricalCrossEntropyLogits, equiv.Tokens(batch, 64, 256)}
	}
	var all []Row
	for _, x := range []struct {
		name        string
		whole, half problem
	}{{"mlp-7M/128", mlp(128), mlp(64)}, {"mlp-7M/512", mlp(512), mlp(256)}, {"transformer-1M/16", lm(16), lm(8)}} {
		for _, passes := range []string{"none", "all"} {
			all = append(all, Row{Name: "2-devices/" + x.name + "/passes-" + passes, Peer: "plain GoMLX, all cores", Pairs: 15, Warm: 2,
				Ours: func() (side, error) { return x.half.onDevices(2, passes) }, Theirs: x.whole.onPlain})
		}
		all = append(all, Row{Name: "2-devices/" + x.name + "/passes-all", Peer: "EPL, 1 device on one core", Pairs: 15, Warm: 2,
			Ours: func() (side, error) { return x.half.onDevices(2, "all") }, Theirs: x.whole.onOneCore})
	}
	return all
}

func wideLanguageModel(scope *model.Scope, x *Node) *Node {
	return transformer.New(scope).WithVocabSize(256).WithEmbedDim(128).WithNumLayers(4).WithNumHeads(4).WithHeadDim(32).
		WithMaxPosEmbed(64).WithCausalMask(true).Logits(x, transformer.CallOptions{})
}

// onDevices measures steps of several virtual devices, each of which takes a batch of the problem.
func (p problem) onDevices(devices int, passes string) (side, error) {
	return p.dealt(sgd(), epl.WithPasses(passes), epl.WithLocalDevices(devices))
}

// dealt measures steps of batches that are dealt to devices.
func (p problem) dealt(opt optimizer.Interface, options ...epl.Option) (side, error) {
	return p.dealtBy(nil, opt, options...)
}

// dealtBy is dealt with settings.
func (p problem) dealtBy(s settings, opt optimizer.Interface, options ...epl.Option) (side, error) {
	env, err := s.init(options...)
	if err != nil {
		return side{}, err
	}
	trainer := train.NewTrainer(env.Backend(), newStore(), p.build, p.loss, epl.Optimizer(opt), nil, nil)
	next, stop := pull(env.Dataset(equiv.Dataset{Batch: func(i int) (in, labels []*tensors.Tensor) { return p.batch(i % 4) }}))
	return side{
		once: func() (time.Duration, error) {
			batch, err := next()
			if err != nil {
				return 0, err
			}
			start := time.Now()
			_, err = trainer.TrainStep(batch)
			return time.Since(start), err
		},
		close: func() {
			stop()
			_ = env.Close()
		},
	}, nil
}

// onOneCore measures EPL on one device that does nothing in parallel.
func (p problem) onOneCore() (side, error) {
	env, err := epl.Init(nil, epl.WithInner("go:ops_sequential,parallelism=0"))
	if err != nil {
		return side{}, err
	}
	return p.steps(env.Backend(), epl.Optimizer(sgd()), func() { _ = env.Close() }), nil
}

// allReduceRows compare an all-reduce among goroutines with copying as many bytes in memory.
func allReduceRows() []Row {
	var all []Row
	for _, n := range []int{2, 4} {
		for _, size := range []int{4 << 10, 256 << 10, 4 << 20, 64 << 20} {
			all = append(all, Row{Name: fmt.Sprintf("all-reduce/%d-devices/%d-KB", n, size>>10), Peer: "memory copy", Pairs: 50, Warm: 5,
				Ours: func() (side, error) { return allReduce(n, size) }, Theirs: func() (side, error) { return memoryCopy(size) }})
		}
	}
	return all
}

// repeats makes short operations long enough for the clock.
func repeats(size int) int { return max(1, (1<<20)/size) }

func allReduce(n, size int) (side, error) {
	world, err := comm.NewInProcess(n, comm.Options{})
	if err != nil {
		return side{}, err
	}
	var ends []*comm.Communicator
	for d := range n {
		c, err := world.All().Communicator(d, 0)
		if err != nil {
			return side{}, err
		}
		ends = append(ends, c)
	}
	buffers := make([][]float32, n)
	for i := range buffers {
		buffers[i] = make([]float32, size/4)
	}
	return side{
		once: func() (time.Duration, error) {
			var wg sync.WaitGroup
			errs := make([]error, n)
			start := time.Now()
			for d, c := range ends {
				wg.Go(func() {
					for range repeats(size) {
						if errs[d] = c.AllReduce(buffers[d], comm.Sum); errs[d] != nil {
							return
						}
					}
				})
			}
			wg.Wait()
			d := time.Since(start) / time.Duration(repeats(size))
			for _, err := range errs {
				if err != nil {
					return 0, err
				}
			}
			return d, nil
		},
		close: func() { _ = world.Close() },
	}, nil
}

func memoryCopy(size int) (side, error) {
	a, b := make([]float32, size/4), make([]float32, size/4)
	return side{once: func() (time.Duration, error) {
		start := time.Now()
		for range repeats(size) {
			copy(a, b)
		}
		return time.Since(start) / time.Duration(repeats(size)), nil
	}}, nil
}

// pull gives the batches of a dataset one by one.
func pull(ds train.Dataset) (next func() (train.Batch, error), stop func()) {
	nextBatch, stop := iter.Pull2(ds.Iter())
	return func() (train.Batch, error) {
		b, err, ok := nextBatch()
		if !ok {
			return b, fmt.Errorf("the data ended")
		}
		return b, err
	}, stop
}
