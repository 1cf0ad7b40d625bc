// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/internal/hostmem"
	"github.com/easyparallel/epl/record"
)

// CheckpointBuilder says where and when checkpoints of a store are saved: see [Env.Checkpoints].
type CheckpointBuilder struct {
	env       *Env
	store     *model.Store
	fs        checkpoint.FS
	dir       string
	keep      int
	best      []checkpoint.Best
	steps     int
	every     time.Duration
	signals   []os.Signal
	excluded  []string
	fromStart bool // of the data
	ownBatch  bool
	at        string
}

// Checkpoints saves the variables of a store to a folder and loads them again: weights, the state of the optimizer, the global step, the
// loss scale and the state of random numbers, with hyperparameters and the position in the data: a dataset that was given to
// [Env.Dataset] goes on with the batch after the last one that a complete training step has consumed. Every worker writes what it has,
// and reads what it needs: nothing is gathered. What one plan has saved, any other loads, on any number of workers and devices.
//
//	saver, err := env.Checkpoints(store).Dir("/shared/run1").Keep(3).EverySteps(100).Done() // before the trainer and the loop
//	…
//	loop := train.NewLoop(trainer)
//	loop.OnStep("checkpoints", 100, saver.OnStep)
//	_, err = loop.RunToGlobalStep(env.Dataset(ds), 5000)
//
// All workers call all of it, at the same points, and see the same folder. Done loads the newest checkpoint, if there is one.
//
// With recovery.copies, OnStep also copies variables to memory that outlives this worker, and Done goes on from there when an elastic job has lost workers. Then Dir may be left out:
// nothing is written to disk.
func (e *Env) Checkpoints(store *model.Store) *CheckpointBuilder {
	return &CheckpointBuilder{env: e, store: store, fs: e.files(), keep: 1, at: string(record.Here())}
}

// Dir is the folder of the checkpoints. It is made if it is not there.
func (b *CheckpointBuilder) Dir(dir string) *CheckpointBuilder {
	b.dir = dir
	return b
}

// Keep is how many checkpoints stay: older ones are removed when a new one is there. The default is 1; -1: all stay.
func (b *CheckpointBuilder) Keep(n int) *CheckpointBuilder {
	b.keep = n
	return b
}

// EverySteps lets [Checkpoint.OnStep] save when the global step is a multiple of n.
func (b *CheckpointBuilder) EverySteps(n int) *CheckpointBuilder {
	b.steps = n
	return b
}

// Every lets [Checkpoint.OnStep] save when so much time has passed since it last did. The first worker's clock counts.
func (b *CheckpointBuilder) Every(d time.Duration) *CheckpointBuilder {
	b.every = d
	return b
}

// OnSignal lets [Checkpoint.OnStep] save when any worker has got one of these signals, and then end training by an error that is [ErrInterrupted]: on the workers that have
// got it, which are all if epl-launch passes it on. Without arguments they are SIGTERM and SIGUSR1, which schedulers send before they end a job. Until [Checkpoint.Close] they do
// nothing else.
//
//	if _, err := loop.RunToGlobalStep(env.Dataset(ds), steps); errors.Is(err, epl.ErrInterrupted) {
//		return nil // the same command goes on from here
//	}
func (b *CheckpointBuilder) OnSignal(signals ...os.Signal) *CheckpointBuilder {
	if len(signals) == 0 {
		signals = []os.Signal{syscall.SIGTERM, syscall.SIGUSR1}
	}
	b.signals = append(b.signals, signals...)
	return b
}

// ExcludeParams names hyperparameters that keep the values that the program has set, and do not get those of the checkpoint: by key, in all scopes, or by
// path.
func (b *CheckpointBuilder) ExcludeParams(names ...string) *CheckpointBuilder {
	b.excluded = append(b.excluded, names...)
	return b
}

// DataFromStart lets datasets begin anew, and not where the checkpoint was saved: for those that give other batches in every run, as an
// unseeded shuffle does.
func (b *CheckpointBuilder) DataFromStart() *CheckpointBuilder {
	b.fromStart = true
	return b
}

// BatchFromConfig lets a step take as many batches as the configuration and the number of model replicas make. Else it takes as many as before
// the checkpoint, unless pipeline.num_micro_batch is another than it was: then model replicas have more or fewer micro-batches.
func (b *CheckpointBuilder) BatchFromConfig() *CheckpointBuilder {
	b.ownBatch = true
	return b
}

// Done loads the newest checkpoint that is not damaged, if there is any, and attaches to the store. Hyperparameters are set at once. Variables get
// their values when they are used: each device then reads its part.
//
// A damaged checkpoint is passed over with a message. It is an error if there are checkpoints, but none can be loaded.
func (b *CheckpointBuilder) Done() (*Checkpoint, error) {
	switch {
	case b.store == nil:
		return nil, errors.Errorf("epl: Checkpoints(nil) at %s: give it the store of the model", b.at)
	case b.dir == "" && b.env.memory == nil:
		return nil, errors.Errorf("epl: checkpoints at %s have no folder: say Dir(…)", b.at)
	case b.dir == "" && (b.steps > 0 || b.every > 0):
		return nil, errors.Errorf("epl: checkpoints at %s have no folder to save to, but EverySteps(%d) or Every(%v): say Dir(…), or leave these out; copies in memory (recovery.copies) are made after every step", b.at, b.steps, b.every)
	case b.dir == "" && len(b.signals) > 0:
		return nil, errors.Errorf("epl: checkpoints at %s have no folder to save to, but OnSignal(…): say Dir(…)", b.at)
	case b.keep == 0 || b.keep < -1:
		return nil, errors.Errorf("epl: checkpoints at %s: Keep(%d) must be at least 1, or -1 to keep all", b.at, b.keep)
	case b.steps < 0 || b.every < 0:
		return nil, errors.Errorf("epl: checkpoints at %s: EverySteps(%d) and Every(%v) must not be negative", b.at, b.steps, b.every)
	}
	if err := b.checkBest(); err != nil {
		return nil, err
	}
	dir := b.dir
	if dir != "" {
		var err error
		if dir, err = filepath.Abs(b.dir); err != nil {
			return nil, errors.Wrap(err, "epl: checkpoints")
		}
	}
	c := &Checkpoint{env: b.env, store: b.store, fs: &checkpoint.Counted{FS: b.fs}, dir: dir, keep: b.keep, steps: b.steps, every: b.every, saved: time.Now(), unused: map[string]bool{}}
	c.dataFromStart, c.batchFromConfig, c.best = b.fromStart, b.ownBatch, b.best
	c.group = newSaveGroup(b.env.job)
	if m := b.env.memory; m != nil {
		if len(b.env.savers) > 0 {
			return nil, errors.Errorf("epl: checkpoints at %s are of a second store, and copies in memory (recovery.copies) are of one: close the first, or leave recovery.copies unset", b.at)
		}
		c.copies = &copier{c: c, job: b.env.job, memory: m, available: hostmem.Available, store: b.env.stores}
	}
	if err := c.load(b.excluded); err != nil {
		return nil, err
	}
	if len(b.signals) > 0 {
		c.signals = make(chan os.Signal, 8)
		signal.Notify(c.signals, b.signals...)
	}
	b.env.stores++
	b.env.savers = append(b.env.savers, c)
	return c, nil
}

// Checkpoint saves the variables of a store: see [Env.Checkpoints].
type Checkpoint struct {
	env   *Env
	store *model.Store
	fs    *checkpoint.Counted
	dir   string
	keep  int
	steps int
	every time.Duration
	group saveGroup

	signals     chan os.Signal // nil: they do nothing
	interrupted bool           // one has come

	step int64 // that was loaded
	end  int   // of training, as the launcher was told

	dataFromStart, batchFromConfig bool
	batches                        int // of a step before the checkpoint that was loaded; 0: it is not kept

	best    []checkpoint.Best
	metrics map[string]float64 // of the next checkpoint
	missed  bool               // a message has said that there is no value

	copies *copier     // nil: there are none in memory
	stale  atomic.Bool // the newest checkpoint in the folder is older than what was loaded

	before model.Loader // of the store
	loaded reader
	saved  time.Time
	next   int  // number of the next save; the first worker's counts
	shared bool // a message has said that another job saves to the folder

	mu     sync.Mutex
	unused map[string]bool // variables of the checkpoint that no program has asked for
	told   bool            // a message has named them

	// The last save that was begun: running is closed when it is over on this worker, on the first one when it is over everywhere. What follows
	// may be looked at then.
	number  int
	running chan struct{} // nil: none was begun
	failed  error
	room    []byte // of what is written
	last    string // newest checkpoint that is there, on the first worker
}

// Step is the global step of the checkpoint that was loaded; 0: there was none.
func (c *Checkpoint) Step() int64 { return c.step }

// BytesRead is how many bytes this worker has read from checkpoints: its share of what is verified, and what its devices need.
func (c *Checkpoint) BytesRead() int64 { return c.fs.Read.Load() }

// OnStep saves if it is time to, and returns. With recovery.copies it also lets variables be copied to memory that outlives this worker, after every step for
// which it is called. What this worker has to write is copied while the next step computes gradients, which only reads variables: the step
// waits for the copy before it updates them. It is written while training goes on. If that fails, as
// on a full disk, a message says so, the checkpoint before stays, and the next save is tried when it is time for it.
func (c *Checkpoint) OnStep(loop *train.Loop, metrics []*tensors.Tensor) error {
	if err := c.ends(loop); err != nil {
		return err
	}
	c.tellUnused()
	if c.copies != nil && !c.env.plans {
		if err := c.copies.begin(int64(loop.LoopStep) + 1); err != nil {
			c.env.job.Trouble(err)
			return err
		}
	}
	if end, err := c.interrupt(loop, metrics); end || err != nil {
		return err
	}
	due := c.steps > 0 && (loop.LoopStep+1)%c.steps == 0
	if c.every > 0 && !due {
		var err error
		if due, err = c.group.decide(time.Since(c.saved) >= c.every); err != nil {
			return err
		}
	}
	if !due {
		return nil
	}
	if err := c.takeMetrics(loop, metrics); err != nil {
		return err
	}
	return c.begin(false)
}

// Save saves now, and returns when the checkpoint is on disk. All workers call it.
func (c *Checkpoint) Save() error {
	if c.dir == "" {
		return errors.New("epl: a checkpoint cannot be saved: there is no folder; say Checkpoints(…).Dir(…)")
	}
	defer c.group.busy("saving a checkpoint")()
	if err := c.begin(true); err != nil {
		return err
	}
	c.wait()
	return c.group.verdict(c.number, c.failed)
}

// Wait waits until what OnStep has begun to save is on disk, and returns why it is not. It need not be called: training may go on meanwhile.
func (c *Checkpoint) Wait() error {
	c.wait()
	return c.failed
}

// Close waits for what is being written, and returns why it could not be. Closing twice is harmless. Variables that were loaded and not used yet
// are gone.
func (c *Checkpoint) Close() error {
	if c.signals != nil {
		signal.Stop(c.signals)
	}
	c.wait()
	if c.copies != nil {
		c.copies.wait()
	}
	c.room = nil
	c.loaded.set(nil)
	if i := slices.Index(c.env.savers, c); i >= 0 {
		c.env.savers = slices.Delete(c.env.savers, i, i+1)
	}
	err := c.failed
	if c.copies != nil && err == nil {
		err = c.copies.failed
	}
	c.failed = nil
	return err
}

// wait returns when no save is under way.
func (c *Checkpoint) wait() {
	if c.running != nil {
		<-c.running
	}
}

// isRunning tells whether a save is under way.
func (c *Checkpoint) isRunning() bool {
	if c.running == nil {
		return false
	}
	select {
	case <-c.running:
		return false
	default:
		return true
	}
}

// closeSavers lets what is being written be finished.
func (e *Env) closeSavers() {
	for _, c := range slices.Clone(e.savers) {
		_ = c.Close() // a message has said why
	}
}

// warn logs a message about checkpoints.
func warn(format string, args ...any) { log.Printf("epl: "+format, args...) }
