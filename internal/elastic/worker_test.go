// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"flag"
	"fmt"
	"iter"
	"os"
	"testing"
	"time"

	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/jobtest"
	"github.com/easyparallel/epl/launch"
)

// The test binary is also the launcher's guard, its agent on another machine, a launcher, and the workers.
const (
	workVariable   = "EPLTEST_WORK"
	launchVariable = "EPLTEST_LAUNCH"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "--agent" {
		os.Exit(launch.Agent(os.Stdin, os.Stdout, nil, os.Args[:1]))
	}
	if text := os.Getenv(launchVariable); text != "" && len(os.Args) == 1 { // not its guard
		os.Exit(launcher(text))
	}
	_ = flag.Set("test.parallel", "4") // jobs wait more than they compute
	jobtest.Main(m, launch.Guard, workVariable, (*work).run)
}

// work is what the workers of a job do.
type work struct {
	Dir    string // of checkpoints; "": there is none
	Steps  int
	Every  int           // steps is a checkpoint saved
	Pause  time.Duration // in every step, so that workers can be killed in time
	Config map[string]any
	Copies bool // in memory
	Split  int  // devices that each layer is split over; 0: layers are replicated
	Broken int  // a batch, from 1, that makes the second worker fail; 0: none
	Again  bool // the loop runs for so many steps at every start, which is wrong
	Signal bool // saves on signals, and ends well
	Wait   bool // until a checkpoint is on disk, so that it is there when workers are killed some steps later
}

const (
	samples = 4  // of a batch
	width   = 12 // of the hidden layer
	batches = 120
)

// numbered are batches of which each sample is the only one to change a row of the first weights: these are a log of what was trained on.
type numbered struct{}

func (numbered) Name() string { return "numbered" }

func (numbered) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for i := 0; ; i = (i + 1) % batches {
			x, y := make([]float32, samples*samples*batches), make([]float32, samples)
			for s := range samples {
				n := i*samples + s
				x[s*samples*batches+n] = 1
				y[s] = float32(n%7) - 3
			}
			if !yield(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, samples, samples*batches)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, samples, 1)}}, nil) {
				return
			}
		}
	}
}

// network has two layers, each in a scope of its own.
func (w *work) network(scope *model.Scope, x *Node) *Node {
	strategy := func(name string) epl.Strategy {
		if w.Split > 0 {
			return epl.Split(w.Split, name)
		}
		return epl.Replicate(1, name)
	}
	layer := func(name string, x *Node, size int) *Node {
		epl.With(x, strategy(name), func() {
			v := scope.In("%s", name).VariableWithShape("weights", shapes.Make(x.DType(), x.Shape().Dimensions[1], size))
			x = MatMul(x, v.NodeValue(x.Graph()))
		})
		return x
	}
	return layer("two", Tanh(layer("one", x, width)), 1)
}

// run is an ordinary training program. It is the same at every start.
func (w *work) run() error {
	fmt.Printf("pid %d\n", os.Getpid())
	if w.Config == nil {
		w.Config = map[string]any{"cluster.colocate_split_and_replicate": true}
	}
	if w.Copies {
		w.Config["recovery.copies"] = 1
	}
	cfg, err := epl.NewConfig(w.Config)
	if err != nil {
		return err
	}
	env, err := epl.Init(cfg)
	if err != nil {
		return err
	}
	defer env.Close()
	store := model.NewStore()
	store.SetParam(optimizer.ParamLearningRate, 0.5)
	store.SetParam(model.ParamInitialSeed, int64(1))
	saving := env.Checkpoints(store)
	if w.Dir != "" {
		saving.Dir(w.Dir).Keep(2).EverySteps(w.Every)
	}
	if w.Signal {
		saving.OnSignal()
	}
	saver, err := saving.Done()
	if err != nil {
		return err
	}
	network := func(scope *model.Scope, x *Node) *Node {
		return w.network(scope.WithInitializer(initializer.RandomUniformFn(scope, -1, 1)), x)
	}
	trainer := train.NewTrainer(env.Backend(), store, network, loss.MeanSquaredError,
		epl.Optimizer(optimizer.StochasticGradientDescent().WithDecay(false).Done()), nil, nil)
	loop := train.NewLoop(trainer)
	loop.OnStep("pause", 0, func(l *train.Loop, metrics []*tensors.Tensor) error {
		time.Sleep(w.Pause)
		if env.IsMain() {
			fmt.Printf("step %d loss %v\n", l.LoopStep+1, metrics[0].Value())
		}
		if l.LoopStep+1 == w.Broken && env.Cluster().WorkerIndex() == env.Cluster().WorkerNum()-1 {
			return errors.New("the batch is rotten")
		}
		return nil
	})
	loop.OnStep("checkpoints", 100, saver.OnStep)
	loop.OnStep("done", 101, func(l *train.Loop, _ []*tensors.Tensor) error {
		if w.Copies && env.IsMain() {
			fmt.Printf("done %d\n", l.LoopStep+1)
		}
		return nil
	})
	if w.Wait {
		loop.OnStep("wait", 101, func(*train.Loop, []*tensors.Tensor) error { return saver.Wait() })
	}
	if w.Again {
		_, err = loop.RunSteps(env.Dataset(numbered{}), w.Steps)
	} else {
		_, err = loop.RunToGlobalStep(env.Dataset(numbered{}), w.Steps)
	}
	if errors.Is(err, epl.ErrInterrupted) {
		fmt.Println("interrupted")
		return nil
	}
	if err != nil || w.Dir == "" {
		return err
	}
	return saver.Save()
}
