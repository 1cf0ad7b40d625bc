// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rootcause

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/internal/jobtest"
	"github.com/easyparallel/epl/launch"
)

// The test binary is also the launcher's guard, and the workers.
const orderVariable = "EPLTEST_ORDER"

func TestMain(m *testing.M) { jobtest.Main(m, launch.Guard, orderVariable, (*order).work) }

// order is what happens to one worker of a job, and when.
type order struct {
	Phase   string // start, compile, step, save, end; or saving: the first worker, in its hook
	Kind    string // kill, stop, or what the victim's own program does
	Victim  int
	Stages  int    // of the model; 1: data parallel
	Hosts   string // as in EPL_WORKER_HOSTS; "": one
	Timeout time.Duration
	Folder  string
}

const saveAt, endAt = 4, 6 // steps

// What a program can do to itself.
var deeds = map[string]func() error{
	"error":  func() error { return errors.New("the disk is full") },
	"fatal":  func() error { log.Fatal("the disk is full"); return nil },
	"panic":  func() error { panic("the disk is full") },
	"exit 0": func() error { os.Exit(0); return nil },
	"ends":   func() error { return errEnough },
	"hang":   func() error { time.Sleep(time.Hour); return nil },
}

var errEnough = errors.New("enough")

// at is called where a phase begins. The victim says so, and stays in the phase for a while: the test has that long to do
// something to it.
func (o *order) at(me int, phase string) error {
	if me != o.Victim || phase != o.Phase {
		return nil
	}
	fmt.Printf("pid %d\n", os.Getpid())
	if deed := deeds[o.Kind]; deed != nil {
		return deed()
	}
	if phase != "step" { // steps follow each other at once
		time.Sleep(stay)
	}
	return nil
}

// stay is how long the victim stays in a phase.
const stay = 500 * time.Millisecond

// work is an ordinary training program: it saves in the middle, and returns its error.
func (o *order) work() (err error) {
	if o.Hosts != "" {
		os.Setenv(cluster.EnvWorkerHosts, o.Hosts)
	}
	var me int
	fmt.Sscan(os.Getenv(cluster.EnvWorkerIndex), &me)
	if err := o.at(me, "start"); err != nil {
		return err
	}
	cfg, err := epl.NewConfig(map[string]any{"communication.timeout": o.Timeout.String(), "pipeline.num_micro_batch": 2})
	if err != nil {
		return err
	}
	env, err := epl.Init(cfg)
	if err != nil {
		return err
	}
	defer env.Close()

	store := model.NewStore()
	store.SetParam(optimizer.ParamLearningRate, 0.01)
	store.SetParam(model.ParamInitialSeed, int64(1))
	saver, err := checkpoint.Build(store).Dir(filepath.Join(o.Folder, "checkpoint")).Keep(1).Done()
	if err != nil {
		return err
	}
	compiled := false
	build := equiv.StagedMLP(func(_ *model.Scope, x *graph.Node) *graph.Node { return x })(o.Stages)
	if o.Stages == 1 {
		build = func(scope *model.Scope, inputs []*graph.Node) []*graph.Node {
			return []*graph.Node{equiv.MLP(2, 16, false)(scope.WithInitializer(initializer.Zero), inputs[0])}
		}
	}
	trainer := train.NewTrainer(env.Backend(), store, func(scope *model.Scope, inputs []*graph.Node) []*graph.Node {
		if !compiled {
			compiled = true
			if err := o.at(me, "compile"); err != nil {
				panic(err)
			}
		}
		return build(scope, inputs)
	}, loss.MeanSquaredError, epl.Optimizer(optimizer.StochasticGradientDescent().WithDecay(false)), nil, nil)
	loop := train.NewLoop(trainer)
	loop.OnStep("phases", 0, func(l *train.Loop, _ []*tensors.Tensor) error {
		switch l.LoopStep {
		case saveAt - 1:
			return o.at(me, "step")
		case saveAt:
			return o.at(me, "save")
		}
		return nil
	})
	save := env.OnFirstWorker(func(l *train.Loop, metrics []*tensors.Tensor) error {
		if err := o.at(me, "saving"); err != nil {
			return err
		}
		return saver.SaveOnStepFn(l, metrics)
	})
	loop.OnStep("save", 10, func(l *train.Loop, metrics []*tensors.Tensor) error {
		if l.LoopStep == saveAt && strings.HasPrefix(o.Phase, "sav") {
			return save(l, metrics)
		}
		return nil
	})
	steps := endAt
	if o.Phase == "step" {
		steps = 1 << 30
	}
	_, err = loop.RunSteps(env.Dataset(equiv.Dataset{Batch: equiv.Regression(4, 8)}), steps)
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err != nil:
		return err
	}
	return o.at(me, "end")
}
