// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/state"
)

// reader is the checkpoint that variables are read from that nobody has used yet. It may be replaced by another that has the same.
type reader struct {
	mu sync.RWMutex
	c  *checkpoint.Checkpoint // nil: there is none
}

// set takes another checkpoint, and closes the one before.
func (r *reader) set(c *checkpoint.Checkpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c != nil {
		_ = r.c.Close()
	}
	r.c = c
}

func (r *reader) isOpen() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.c != nil
}

// isAnother tells whether it is not the one of that name.
func (r *reader) isAnother(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.c != nil && filepath.Base(r.c.Folder) != name
}

var errNotOpen = errors.New("epl: a variable of a checkpoint was used after the checkpoints were closed: close them when all is done")

func (r *reader) read(path string, want state.Region, to []byte) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.c == nil {
		return errNotOpen
	}
	return r.c.Read(path, want, to)
}

func (r *reader) shape(path string) (shapes.Shape, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.c == nil {
		return shapes.Shape{}, errNotOpen
	}
	s, ok := r.c.Shape(path)
	if !ok {
		return s, errors.Errorf("epl: internal error: checkpoint %s has no variable %q", r.c.Folder, path)
	}
	return s, nil
}

// readFrom lets unused variables be read from a newer checkpoint, so that the older one may go.
func (c *Checkpoint) readFrom(name string) {
	if !c.loaded.isOpen() {
		return
	}
	folder := filepath.Join(c.dir, name)
	opened, err := checkpoint.Open(c.fs, folder)
	if err != nil {
		warn("variables that were loaded and not used yet stay with the checkpoint before %s: %s", name, sentence(err))
		return
	}
	c.loaded.set(opened)
}

// read reads from the checkpoint that was loaded. If its files are gone, because it is an old one by now, a newer one has the same: nobody has used the
// variable.
func (c *Checkpoint) read(path string, want state.Region, to []byte) error {
	err := c.loaded.read(path, want, to)
	if err == nil || !c.loaded.isOpen() {
		return err
	}
	all, _, _, e := checkpoint.List(c.fs, c.dir)
	if n := len(all); e == nil && n > 0 && !c.stale.Load() && c.loaded.isAnother(all[n-1].Name) {
		c.readFrom(all[n-1].Name)
		return c.loaded.read(path, want, to)
	}
	return err
}

// load finds the newest checkpoint that all workers can read, and attaches it to the store.
func (c *Checkpoint) load(excluded []string) error {
	defer c.group.busy("loading a checkpoint")()
	var all []checkpoint.Listed
	var damaged []error
	var err error
	if c.env.IsMain() && c.dir != "" {
		if !c.env.plans {
			err = c.fs.MkdirAll(c.dir)
		}
		if err == nil {
			all, c.next, damaged, err = checkpoint.List(c.fs, c.dir)
		}
		for _, d := range damaged {
			warn("a checkpoint is passed over, because it is damaged: %s", sentence(d))
		}
	}
	problem := ""
	if err != nil {
		problem = fmt.Sprintf("the folder of checkpoints %s cannot be used: %s", c.dir, sentence(err))
	}
	if c.copies != nil {
		if done, err := c.recover(all, excluded); done || err != nil {
			return err
		}
	}
	for try := 0; ; try++ {
		// The first worker says which to try next; "": there is none.
		name := ""
		if n := len(all); n > 0 {
			name = all[n-1].Name
			all = all[:n-1]
		} else if len(damaged) > 0 && problem == "" {
			problem = fmt.Sprintf("there are checkpoints in %s, and none can be loaded; the newest: %s. Move them to another folder to begin anew", c.dir, sentence(damaged[len(damaged)-1]))
		}
		handed, err := c.group.handOut(name + "\n" + problem)
		if err != nil {
			return err
		}
		if name, problem, _ = strings.Cut(handed, "\n"); problem != "" {
			return errors.New("epl: " + problem)
		}
		if name == "" {
			return nil
		}
		opened, err := checkpoint.Open(c.fs, filepath.Join(c.dir, name))
		if err == nil && !c.env.plans { // a plan needs shapes only
			err = opened.Verify(c.env.cluster.WorkerIndex(), c.env.cluster.WorkerNum())
		}
		if err = c.group.together(-1-try, err); err == nil {
			c.last = name
			return c.attach(opened, excluded)
		}
		if opened != nil {
			_ = opened.Close()
		}
		if c.env.IsMain() {
			warn("the checkpoint %s is passed over, because it cannot be read: %s", name, sentence(err))
			damaged = append([]error{}, err)
		}
	}
}

// recover goes on from copies in memory, if there are any of a later step than the newest of these checkpoints, which the first worker has.
func (c *Checkpoint) recover(all []checkpoint.Listed, excluded []string) (done bool, _ error) {
	newest := int64(0)
	if n := len(all); n > 0 {
		newest = all[n-1].Manifest.Step
	}
	text, err := c.group.handOut(fmt.Sprint(newest))
	if err == nil {
		newest, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		return false, err
	}
	opened, err := c.copies.find(newest)
	if opened == nil || err != nil {
		return false, err
	}
	if c.env.IsMain() {
		warn("training goes on from the copies in memory of step %d; the newest checkpoint is of step %d", opened.Manifest.Step, newest)
		if n := len(all); n > 0 {
			c.last = all[n-1].Name
		}
	}
	c.stale.Store(true)
	c.env.job.Copied(opened.Manifest.Step)
	return true, c.attach(opened, excluded)
}

// attach gives the store what is in a checkpoint.
func (c *Checkpoint) attach(opened *checkpoint.Checkpoint, excluded []string) error {
	c.loaded.set(opened)
	c.step = opened.Manifest.Step
	c.group.loaded(c.step)
	for _, path := range opened.Paths() {
		c.unused[path] = true
	}
	for v := range c.store.IterVariables() { // those that are there already, such as the global step
		value, err := c.take(v.Path())
		if err != nil {
			return err
		}
		if value == nil {
			continue
		}
		if !value.Shape().Equal(v.Shape()) {
			return errors.Errorf("epl: variable %q has the shape %s, and in the checkpoint %s it has %s", v.Path(), v.Shape(), opened.Folder, value.Shape())
		}
		if err := v.SetValue(value); err != nil {
			return err
		}
	}
	for _, p := range opened.Manifest.Params {
		path := model.JoinPath(p.Scope, p.Key)
		if !slices.Contains(excluded, p.Key) && !slices.Contains(excluded, path) {
			value, err := p.Typed()
			if err != nil {
				return errors.Wrapf(err, "epl: checkpoint %s, hyperparameter %q", opened.Folder, path)
			}
			c.store.SetParam(path, value)
		}
	}
	if !c.dataFromStart && !c.env.plans { // a plan needs a batch, not the next one
		c.goOn(opened.Manifest)
	}
	if !c.batchFromConfig {
		c.keepBatch(opened.Manifest)
	}
	c.before = c.store.Loader()
	c.store.SetLoader(loader{c})
	return nil
}

// take is the value of a variable of the checkpoint, which is used from now on; nil: there is none.
func (c *Checkpoint) take(path string) (*tensors.Tensor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.unused[path] {
		return nil, nil
	}
	shape, err := c.loaded.shape(path)
	if err != nil {
		return nil, err
	}
	delete(c.unused, path)
	return tensors.FromBuffer(c.env.runner.From(shape, func(r state.Region, to []byte) error { return c.read(path, r, to) }, true))
}

// tellUnused says once, after a training step, which variables of the checkpoint it has not used: a model with fewer layers than the one that was saved would
// go on without a word. Those of metrics get new names in every run, and the state of random numbers is there also for programs that draw none.
func (c *Checkpoint) tellUnused() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told || !c.env.IsMain() {
		return
	}
	c.told = true
	paths := slices.DeleteFunc(slices.Sorted(maps.Keys(c.unused)), func(path string) bool {
		return strings.HasPrefix(path, "/metrics/") || strings.HasSuffix(path, "/"+model.RNGStateVariableName)
	})
	if len(paths) > 0 {
		warn("the checkpoint of step %d in %s has %s that this training step does not use, such as %q: is it another model, or another optimizer? Later checkpoints keep them",
			c.step, c.dir, words.Count(len(paths), "variable"), paths[0])
	}
}

// loader gives a store the variables that it asks for. It implements model.Loader.
type loader struct{ c *Checkpoint }

var _ model.Loader = loader{}

// LoadVariable implements model.Loader. Loaders that were attached before come first.
func (l loader) LoadVariable(store *model.Store, path string) (*tensors.Tensor, bool) {
	if l.c.before != nil {
		if value, found := l.c.before.LoadVariable(store, path); found {
			return value, true
		}
	}
	value, err := l.c.take(path)
	if err != nil {
		panic(err) // as GoMLX does while it builds a graph
	}
	return value, value != nil
}

// DeleteVariable implements model.Loader.
func (l loader) DeleteVariable(store *model.Store, path string) error {
	l.c.mu.Lock()
	delete(l.c.unused, path)
	l.c.mu.Unlock()
	if l.c.before != nil {
		return l.c.before.DeleteVariable(store, path)
	}
	return nil
}
