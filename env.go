// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"io"
	"log"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/compile"
	"github.com/easyparallel/epl/data"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/local"
	"github.com/easyparallel/epl/faults"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/record"
	"github.com/easyparallel/epl/worker"
)

// Env is EPL at work in this process: what [Init] made.
type Env struct {
	cfg     *Config
	cluster *cluster.Cluster
	backend *record.Backend
	engine  *compile.Engine
	runner  *local.Runner
	job     *worker.Job  // nil if this worker is alone
	left    func()       // this process may join the job again
	leave   func() error // release, once
	savers  []*Checkpoint
	tracks  tracks
	stores  int64            // that were given to Checkpoints
	memory  *memory          // for copies of variables; nil: there are none
	faults  *faults.Injector // nil: none
	plans   bool             // only a plan is made: see EnvPlanOut
	watcher *watcher         // tells a dashboard; nil: there is none
}

// Backend is what to hand to GoMLX in place of another backend.
//
//	exec := graph.MustNewExec(env.Backend(), func(x *graph.Node) *graph.Node { return graph.Sqrt(x) })
func (e *Env) Backend() compute.Backend { return e.backend }

// Dataset deals the batches of ds to model replicas and micro-batches: with N of the first and M of the second, one
// training step takes N·M batches, in order, and reads the next ones meanwhile. Batch m·N+r of a step goes to replica r
// as its micro-batch m. At the end of the data, a last step with fewer batches runs on those, and takes the mean over
// them. A batch of another shape than those before it, like a smaller last one, ends the step before it and begins its
// own. Other programs, such as evaluation, take one batch at a time, and model replicas take turns.
//
//	_, err := loop.RunSteps(env.Dataset(ds), 500)
//
// What is wrong with ds is an error of the loop that iterates it, and names the dataset, the worker and the batch.
//
// With [Env.Checkpoints], training goes on after the last batch that was consumed before. A dataset with a method Skip(n int) error, which
// lets its next iteration begin after the first n batches, is skipped by it; else batches are read and let go of.
func (e *Env) Dataset(ds train.Dataset) train.Dataset {
	guarded := data.Guard(ds, e.cluster.WorkerIndex(), string(record.Here()))
	return data.New(guarded, e.runner, e.engine.Deals, e.track(ds, guarded.Name()))
}

// IsMain tells whether this worker is the one that should do what is done once for a whole job: print, write
// files. It is worker 0; in a job of one worker, that one. It may read any variable while the others go on: one that lives on another
// worker, in a pipeline, is fetched from there.
//
//	if env.IsMain() {
//		commandline.AttachProgressBar(loop)
//	}
func (e *Env) IsMain() bool { return e.cluster.WorkerIndex() == 0 }

// FirstWorker is IsMain.
//
// Deprecated: use [Env.IsMain].
func (e *Env) FirstWorker() bool { return e.IsMain() }

// Replicas is the number of model replicas of the training program compiled last, which are the ways of its data parallelism: N. It
// is 0 before the first: how many devices a replica needs is known when the first step has traced the model.
//
//	loop.OnStep("replicas", 0, func(loop *train.Loop, _ []*tensors.Tensor) error {
//		if env.IsMain() && loop.LoopStep == loop.StartStep {
//			fmt.Println(env.Replicas(), "model replicas")
//		}
//		return nil
//	})
func (e *Env) Replicas() int {
	if p := e.Plan(); p != nil {
		return p.Replicas
	}
	return 0
}

// GlobalBatch is the number of samples in a step of the training program compiled last, over all workers, model replicas and
// micro-batches. It is 0 before the first. With N replicas and M micro-batches it is N·M times the dataset's batch; with unequal shares, and in an
// elastic job that has lost workers, it is what a step takes then. The samples of a batch are the first dim of its first input.
// A step at the end of the data may have fewer.
//
//	rate := 0.1 * float64(env.GlobalBatch()) / 256 // the linear rule
func (e *Env) GlobalBatch() int { return e.engine.GlobalBatch() }

// OnFirstWorker lets a function that a training loop calls do its work on the first worker only. All workers load
// checkpoints, and the first one saves them; the others go on, and wait where they need it:
//
//	handler := checkpoint.Build(store).Dir(folder).MustDone()
//	train.EveryNSteps(loop, 100, "save", 100, env.OnFirstWorker(handler.SaveOnStepFn))
func (e *Env) OnFirstWorker(f train.OnStepFn) train.OnStepFn {
	if f == nil {
		at := record.Here()
		return func(*train.Loop, []*tensors.Tensor) error {
			return errors.Errorf("epl: OnFirstWorker(nil) at %s: give it what the loop is to call", at)
		}
	}
	if e.IsMain() {
		return e.watched(f)
	}
	return func(*train.Loop, []*tensors.Tensor) error { return nil }
}

// watched tells the job when a hook fails, so that the other workers learn why this one ends.
func (e *Env) watched(f train.OnStepFn) train.OnStepFn {
	if e.job == nil {
		return f
	}
	return func(loop *train.Loop, metrics []*tensors.Tensor) error {
		err := f(loop, metrics)
		if err != nil {
			e.job.Trouble(err)
		}
		return err
	}
}

// Files returns which of the files this worker reads. With io.slicing they are dealt to the workers, in proportion to
// the model replicas that they feed, and every sample has one reader; else all workers read all files, and [Env.Dataset]
// deals the batches. Hand the result to [data.FromFiles]:
//
//	files, err := env.Files(paths)
//	…
//	ds, err := data.FromFiles("images", files, read, data.FileOptions{Batch: 32, Shuffle: 1000, Seed: 1})
//	…
//	_, err = loop.RunSteps(env.Dataset(ds), 500)
//
// Files that io.drop_last_files leaves out are logged.
func (e *Env) Files(files []string) (data.Slice, error) {
	if len(files) == 0 {
		return data.Slice{}, errors.New("epl: env.Files is given no files; check the folder or the pattern that lists them")
	}
	if !e.cfg.IO.Slicing {
		return data.Slice{Files: files}, nil
	}
	var replicas []int // in proportion to devices; a training program for which that is wrong is refused
	for _, w := range e.cluster.Workers() {
		replicas = append(replicas, len(w.Devices))
	}
	s, err := data.Deal(files, replicas, e.cluster.WorkerIndex(), data.DealOptions{
		DropLast: e.cfg.IO.DropLastFiles, Unbalanced: e.cfg.IO.UnbalancedIOSlicing})
	if err == nil && len(s.Dropped) > 0 && e.IsMain() {
		log.Printf("epl: io.drop_last_files: nobody reads %d of the %d files, from %s on", len(s.Dropped), len(files), s.Dropped[0])
	}
	return s, err
}

// Cluster tells what the job runs on: workers and devices.
//
//	fmt.Println(env.Cluster().TotalDevices())
func (e *Env) Cluster() *cluster.Cluster { return e.cluster }

// Config returns the settings in force. They are fixed once Init has returned.
func (e *Env) Config() *Config { return e.cfg }

// Explain prints how EPL understood every program that was compiled, or refused, so far: TaskGraphs with their ops per
// phase, placement, variables and gradients, collections, and what each pass changed.
//
//	if err := env.Explain(os.Stdout); err != nil {
//		log.Fatal(err)
//	}
func (e *Env) Explain(w io.Writer) error {
	if w == nil {
		return errors.New("epl: Explain(nil): give it a writer, such as os.Stdout")
	}
	return e.engine.Explain(w)
}

// Stats is what really ran.
type Stats struct{ Devices []DeviceStats }

// DeviceStats is what one device did: how many programs it ran, or steps of one it took part in, the most bytes that
// lived on it at once, by what they were for, and the bytes it sent, by "all-reduce", "all-gather", "broadcast".
type DeviceStats = exec.DeviceStats

// Stats tells what the devices of this worker did since it was last called.
//
//	for i, d := range env.Stats().Devices {
//		fmt.Println(i, d.Runs, d.PeakBytes, d.Sent["all-reduce"])
//	}
func (e *Env) Stats() Stats { return Stats{e.engine.Stats()} }

// SkippedSteps is how many training steps were skipped since the start because their loss or gradients were not finite, with reliability.nan = skip. Steps that a loss
// scale skips do not count.
//
//	skipped, err := env.SkippedSteps()
func (e *Env) SkippedSteps() (int64, error) { return e.engine.Skipped() }

// Predicted tells what a step of the training program compiled last needs on the devices of this worker, by EPL's account:
// PeakBytes, Peak and Most, to be compared with what [Env.Stats] found.
//
//	for i, d := range env.Predicted().Devices {
//		fmt.Println(i, d.PeakBytes, d.Peak["activations"])
//	}
func (e *Env) Predicted() Stats { return Stats{e.engine.Predicted()} }

// Plan is that of the training program compiled last: all that was decided about it, with reasons and predicted costs. It is nil
// before the first. [WithPlan] runs by it again.
//
//	file, err := os.Create("plan.json")
//	…
//	err = env.Plan().Encode(file)
func (e *Env) Plan() *plan.Plan { return e.engine.Plan() }

// Close releases the backend. Tensors that still live on it are lost; copy out what you need before. In a job of several
// workers it tells the others that this one is finished: a worker that ends without is missed. It returns why the job
// failed, if it did. What is used of the Env afterwards is an error. Closing twice is harmless, as is closing the nil that
// Init returns with an error.
//
// Workers that still expect something of this one end at once, and say that it has ended; so does a worker whose program
// panics, if Close is deferred.
func (e *Env) Close() error {
	if e == nil {
		return nil
	}
	if e.job == nil {
		err := e.leave()
		e.backend.Finalize()
		return err
	}
	panicked := recover() // of the function that deferred this call
	var why error
	switch {
	case panicked != nil:
		why = errors.Errorf("epl: its program panicked: %v", panicked)
	case panicking():
		why = errors.New("epl: its program panicked; its own output says why")
	}
	if why != nil {
		e.job.Fail(why)
	}
	err := e.leave()
	e.backend.Finalize()
	if panicked != nil {
		panic(panicked)
	}
	return err
}

// release ends what the Env does besides running programs, and leaves the job.
func (e *Env) release() (err error) {
	e.closeSavers()
	e.faults.Close()
	if e.job != nil {
		err = e.job.Leave() // others may read variables until then
	}
	e.memory.close()
	e.watcher.end()
	e.left()
	return err
}
