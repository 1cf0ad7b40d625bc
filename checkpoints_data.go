// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"cmp"
	"reflect"
	"slices"
	"sync"

	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/data"
)

// tracks follow training through the datasets of an Env.
type tracks struct {
	mu     sync.Mutex
	of     map[train.Dataset]*data.Track // those that can be told apart
	all    []*data.Track
	number map[string]int        // of datasets, by name
	missed sync.Once             // a message has said that nothing is copied
	loaded []checkpoint.Position // of datasets that the program has not given to Env.Dataset yet
}

// track is the track of a dataset. Given twice, a dataset keeps it: its iterations are counted whoever wraps it.
func (e *Env) track(ds train.Dataset, name string) *data.Track {
	t := &e.tracks
	t.mu.Lock()
	defer t.mu.Unlock()
	known := reflect.ValueOf(ds).Comparable()
	if known && t.of[ds] != nil {
		return t.of[ds]
	}
	if t.of == nil {
		t.of, t.number = map[train.Dataset]*data.Track{}, map[string]int{}
	}
	x := data.NewTrack(ds, name, t.number[name], e.followed)
	t.number[name]++
	t.all = append(t.all, x)
	if known {
		t.of[ds] = x
	}
	t.claim(x)
	return x
}

// followed tells whether training is followed. Copies that were asked for, and that nobody makes, are told of, once.
func (e *Env) followed() bool {
	if len(e.savers) == 0 && e.memory != nil {
		e.tracks.missed.Do(func() {
			warn("recovery.copies is 1, but nothing is copied: the program has not called env.Checkpoints(store)…Done() before it reads its data")
		})
	}
	return len(e.savers) > 0
}

// claim gives a dataset the position that was loaded for it.
func (t *tracks) claim(x *data.Track) {
	if i := slices.IndexFunc(t.loaded, x.Is); i >= 0 {
		x.GoOn(t.loaded[i])
		t.loaded = slices.Delete(t.loaded, i, i+1)
	}
}

// positions are those to save, in all datasets. Those that this run has not come to are kept.
func (t *tracks) positions() []checkpoint.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.loaded)
	for _, x := range t.all {
		if p := x.Position(); p != nil {
			all = append(all, *p)
		}
	}
	return all
}

// position is what is saved of where training is in the data.
func (c *Checkpoint) position() checkpoint.Data {
	d := checkpoint.Data{Version: checkpoint.DataVersion, Batches: cmp.Or(c.env.engine.Batches(), c.batches), MicroBatches: c.env.cfg.Pipeline.NumMicroBatch}
	if !c.sliced() {
		d.Datasets = c.env.tracks.positions()
	}
	return d
}

// keepBatch lets a step take as many batches as before the checkpoint.
func (c *Checkpoint) keepBatch(m *checkpoint.Manifest) {
	if d := m.Data; d.Batches > 0 && d.MicroBatches == c.env.cfg.Pipeline.NumMicroBatch {
		c.batches = d.Batches
		c.env.engine.Keep(d.Batches)
	}
}

// goOn lets training go on where a checkpoint was saved.
func (c *Checkpoint) goOn(m *checkpoint.Manifest) {
	why := ""
	switch {
	case m.Data.Version != checkpoint.DataVersion || len(m.Data.Datasets) == 0:
		why = "it does not have it: an older EPL has saved it, or io.slicing was set, or the dataset was not given to env.Dataset"
	case c.sliced():
		why = "io.slicing is set, for which it cannot be used"
	}
	if why != "" {
		if m.Step > 0 && c.env.IsMain() {
			warn("datasets begin anew, not at the position in the data of the checkpoint of step %d: %s", m.Step, why)
		}
		return
	}
	t := &c.env.tracks
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loaded = slices.Clone(m.Data.Datasets)
	for _, x := range t.all {
		t.claim(x)
	}
}

// sliced tells whether workers have data of their own.
func (c *Checkpoint) sliced() bool { return c.env.job != nil && c.env.job.Sliced }
