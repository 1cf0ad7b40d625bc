// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/exec/local"
	"github.com/easyparallel/epl/internal/cores"
	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/state"
)

// ticket is what the first worker tells the others at the beginning of a save.
type ticket struct {
	Skip   bool     // that before is still being written
	Number int      // of the checkpoint
	Step   int64    // global step
	Loose  []string // variables that only the first worker's value counts of
	Layout uint64   // checksum of who has what: workers that see it differently cannot save together
	Last   string   // newest checkpoint that is there: variables that nobody has used yet are read from it
	Err    string
}

// savable is a variable that can be saved.
type savable struct {
	state.Variable
	equal bool
	// reader lets a region of it be read while training goes on.
	reader func(state.Region) (*local.Reading, error)
	unread bool // it is still where it was loaded from
}

// begin has what this worker has to write copied, and then written: it does not wait for either. With now it first waits for the save before, which is else a reason to skip this one.
func (c *Checkpoint) begin(now bool) error {
	if c.env.plans {
		return nil // nothing was trained
	}
	defer clear(c.metrics) // of this step
	if now {
		c.wait()
	}
	if err := c.env.engine.CheckNow(); err != nil {
		return err // nobody saves what is wrong
	}
	all, cannot := c.savables()
	t, err := c.ticket(all, cannot)
	if err != nil {
		return err // the job is over
	}
	c.saved = time.Now()
	switch {
	case t.Err != "":
		return errors.Errorf("epl: a checkpoint cannot be saved: %s", t.Err)
	case t.Skip:
		if c.env.IsMain() {
			warn("the checkpoint of step %d is skipped: the one before is still being written to %s; save less often, or to something faster", t.Step, c.dir)
		}
		return nil
	}
	c.wait() // others may be behind the first worker
	if t.Last != "" {
		c.stale.Store(false)
		c.readFrom(t.Last)
	}
	var m *checkpoint.Manifest
	if c.env.IsMain() {
		if m, err = c.manifest(t, all); err != nil {
			cannot = err
		}
	}
	var pieces []reading
	if cannot == nil {
		pieces, cannot = c.mine(all, t)
	}
	running := make(chan struct{})
	c.number, c.running = t.Number, running
	go func() {
		defer close(running)
		defer release(pieces)
		chunks, err := c.chunks(pieces)
		if cannot == nil {
			cannot = err
		}
		if !now {
			defer cores.Beside()()
			background() // nobody waits for what follows
		}
		c.failed = c.write(t, m, chunks, cannot, func() { release(pieces) })
	}()
	return nil
}

// ticket is the first worker's, for all. cannot is why it cannot save.
func (c *Checkpoint) ticket(all []savable, cannot error) (t ticket, _ error) {
	if c.env.IsMain() {
		t = ticket{Number: c.next, Skip: c.isRunning()}
		if !t.Skip && !c.stale.Load() {
			t.Last = c.last
		}
		if cannot == nil {
			t.Step, cannot = globalStep(c.store)
		}
		if cannot != nil {
			t.Err = sentence(cannot)
		} else if !t.Skip {
			c.alone()
			t.Number = c.next
			c.next++
		}
		for _, v := range all {
			if !v.equal {
				t.Loose = append(t.Loose, v.Path)
			}
		}
		t.Layout = layout(all, func(v savable) bool { return slices.Contains(t.Loose, v.Path) })
	}
	text, err := json.Marshal(t)
	if err != nil {
		return t, err
	}
	handed, err := c.group.handOut(string(text))
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal([]byte(handed), &t)
}

// alone warns of another job that saves to the same folder: a checkpoint has a number that this job has not given yet. Numbers go on after it.
func (c *Checkpoint) alone() {
	names, err := c.fs.List(c.dir)
	if c.dir == "" || err != nil {
		return
	}
	foreign := ""
	for _, name := range names {
		if !checkpoint.IsName(name) || name < checkpoint.Name(c.next, 0) {
			continue
		}
		if inside, err := c.fs.List(filepath.Join(c.dir, name)); err == nil && slices.Contains(inside, checkpoint.ManifestName) {
			foreign = name
		}
	}
	for foreign >= checkpoint.Name(c.next, 0) {
		c.next++
	}
	if foreign != "" && !c.shared {
		c.shared = true
		warn("another job saves to %s, too, and has written %s: the two remove each other's checkpoints, and a restart loads the newest of both. Give each job a folder of its own", c.dir, foreign)
	}
}

// manifest is that of a checkpoint whose files are not known yet.
func (c *Checkpoint) manifest(t ticket, all []savable) (*checkpoint.Manifest, error) {
	m := &checkpoint.Manifest{Step: t.Step, Time: time.Now().UTC().Truncate(time.Second), EPL: version.Version, GoMLX: gomlxVersion(), Go: runtime.Version(),
		Workers: c.env.cluster.WorkerNum(), Devices: c.env.cluster.TotalDevices(), Variables: len(all), Params: params(c.store), Metrics: numbers(c.metrics)}
	m.Data = c.position()
	if p := c.env.Plan(); p != nil {
		var b bytes.Buffer
		if err := p.Encode(&b); err != nil {
			return nil, err
		}
		m.Plan = b.Bytes()
	}
	return m, nil
}

// sentence is an error's text to stand inside another sentence.
func sentence(err error) string { return strings.TrimPrefix(err.Error(), "epl: ") }

// globalStep reads the global step, without making one.
func globalStep(store *model.Store) (int64, error) {
	v := store.GetVariable("/" + optimizer.GlobalStepVariableName)
	if v == nil || !v.HasValue() {
		return 0, nil
	}
	value, err := v.Value()
	if err != nil {
		return 0, err
	}
	x, err := value.ValueSafe()
	if err != nil {
		return 0, err
	}
	step, ok := x.(int64)
	if !ok {
		return 0, errors.Errorf("epl: the global step is a %T, not an int64", x)
	}
	return step, nil
}

// savables are the variables of the store that have values, and those of the checkpoint that was loaded that nobody has asked for, by path. Metrics are
// not saved: their variables get new names at every start.
func (c *Checkpoint) savables() (all []savable, _ error) {
	backend := c.env.backend
	for v := range c.store.IterVariables() {
		if !v.HasValue() || strings.Contains(v.Path(), "/"+metric.Scope+"/") {
			continue
		}
		value, err := v.Value()
		if err != nil {
			return nil, err
		}
		s := savable{Variable: state.Variable{Path: v.Path(), Shape: v.Shape()}}
		at, _ := value.Backend()
		if value.IsOnAnyDevice() && at == c.env.Backend() {
			buffer, err := value.Buffer(backend, 0)
			if err == nil {
				s.Held, s.equal, err = c.env.runner.Held(buffer)
			}
			if err != nil {
				return nil, errors.WithMessagef(err, "variable %q", v.Path())
			}
			s.reader = func(want state.Region) (*local.Reading, error) { return c.env.runner.Reader(buffer, want) }
			s.unread = c.env.runner.Unread(buffer)
		} else { // the program has set it
			s.Held = []state.Held{{Region: state.Whole(s.Shape.Dimensions), Ranks: []int{0}}}
			s.reader = func(state.Region) (*local.Reading, error) { return copied(value) }
		}
		all = append(all, s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for path := range c.unused {
		shape, err := c.loaded.shape(path)
		if err != nil {
			return nil, err
		}
		held := state.Held{Region: state.Whole(shape.Dimensions), Ranks: c.group.firsts()}
		all = append(all, savable{state.Variable{Path: path, Shape: shape, Held: []state.Held{held}}, true,
			fixed(func(r state.Region, to []byte) error { return c.read(path, r, to) }), true})
	}
	slices.SortFunc(all, func(a, b savable) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// copied reads a copy of a value: the program may change it.
func copied(value *tensors.Tensor) (*local.Reading, error) {
	shape := value.Shape()
	whole := state.Whole(shape.Dimensions)
	b := make([]byte, state.Bytes(shape.DType, shape.Size()))
	read := func(r state.Region, to []byte) error {
		return state.Cut(shape.DType, shape.Dimensions, to, r, b, whole)
	}
	return &local.Reading{Read: read, Done: func() {}}, cutOut(value, whole, b)
}

// fixed reads what does not change.
func fixed(read local.Source) func(state.Region) (*local.Reading, error) {
	return func(state.Region) (*local.Reading, error) { return &local.Reading{Read: read, Done: func() {}}, nil }
}

// layout sums up who has what: the first worker has what is loose, whoever else does. Copies in memory take it at every step.
func layout(all []savable, loose func(savable) bool) uint64 {
	var b []byte
	ints := func(all ...int) {
		for _, n := range all {
			b = binary.AppendVarint(b, int64(n))
		}
	}
	for _, v := range all {
		b = append(append(b, v.Path...), 0)
		ints(int(v.Shape.DType), len(v.Shape.Dimensions))
		ints(v.Shape.Dimensions...)
		if loose(v) {
			continue
		}
		for _, h := range v.Held {
			ints(h.Start...)
			ints(h.Limit...)
			ints(h.From, h.To, len(h.Ranks))
			ints(h.Ranks...)
		}
	}
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}

// variablesOf are the variables with who has them: the first worker, if they are loose.
func variablesOf(all []savable, loose func(savable) bool) (variables []state.Variable) {
	for _, v := range all {
		if loose(v) {
			v.Held = []state.Held{{Region: state.Whole(v.Shape.Dimensions), Ranks: []int{0}}}
		}
		variables = append(variables, v.Variable)
	}
	return variables
}

// readings lets pieces be read while training goes on.
func readings(all []savable, pieces []state.Piece) (opened []reading, _ error) {
	readers := map[string]func(state.Region) (*local.Reading, error){}
	for _, v := range all {
		readers[v.Path] = v.reader
	}
	for _, p := range pieces {
		r, err := readers[p.Path](p.Region)
		if err != nil {
			release(opened)
			return nil, errors.WithMessagef(err, "variable %q", p.Path)
		}
		opened = append(opened, reading{p, r})
	}
	return opened, nil
}

// reading is a piece that this worker has to write, of a variable that may be in use.
type reading struct {
	state.Piece
	*local.Reading
}

// mine are the pieces that this worker has to write.
func (c *Checkpoint) mine(all []savable, t ticket) (pieces []reading, _ error) {
	loose := func(v savable) bool { return slices.Contains(t.Loose, v.Path) }
	if mine := layout(all, loose); mine != t.Layout {
		return nil, errors.New("its variables are not those of the first worker, or were set by this worker only; all workers must run the same program, and set the same variables")
	}
	dealt := state.Deal(variablesOf(all, loose), c.group.workerOf)
	return readings(all, slices.DeleteFunc(dealt, func(p state.Piece) bool { return c.group.workerOf(p.Owner) != c.env.cluster.WorkerIndex() }))
}

// release lets steps overwrite variables.
func release(pieces []reading) {
	for _, p := range pieces {
		p.Done()
	}
}

// beforeCopy is called before a piece is copied, in tests.
var beforeCopy func()

// chunks are the bytes of pieces: their own memory, if steps leave that alone, or a copy, in the memory of the save before, because new memory costs more time than
// the copy. A piece that is copied is released then.
func (c *Checkpoint) chunks(pieces []reading) (all []checkpoint.Chunk, _ error) {
	room, copied := c.room[:0], 0
	for _, p := range pieces {
		var b []byte
		if beforeCopy != nil {
			beforeCopy()
		}
		if p.View != nil {
			b = p.View(p.Region)
		}
		if b == nil {
			n := p.Bytes()
			if copied += n; len(room)+n > cap(room) {
				room = make([]byte, 0, max(n, 16<<20))
			}
			b, room = room[len(room):len(room)+n:len(room)+n], room[:len(room)+n]
			if err := p.Read(p.Region, b); err != nil {
				return nil, errors.WithMessagef(err, "variable %q", p.Path)
			}
			p.Done()
		}
		all = append(all, checkpoint.Chunk{Piece: p.Piece, Bytes: b, Written: p.Done})
	}
	if cap(c.room) < copied {
		c.room = make([]byte, copied) // for the next save
	}
	return all, nil
}

// write writes the pieces of this worker, lets go of them, and, on the first one, writes the manifest when all others have written theirs. cannot is why they could not be
// read.
func (c *Checkpoint) write(t ticket, m *checkpoint.Manifest, chunks []checkpoint.Chunk, cannot error, written func()) error {
	name := checkpoint.Name(t.Number, t.Step)
	folder := filepath.Join(c.dir, name)
	r := report{Number: t.Number}
	if cannot == nil {
		r.File, cannot = checkpoint.Write(c.fs, folder, c.env.cluster.WorkerIndex(), chunks)
	}
	written()
	if cannot != nil {
		r.Err = sentence(cannot)
	}
	files, err := c.group.collect(r)
	if !c.env.IsMain() {
		return err
	}
	if err == nil {
		m.Files = files
		for _, f := range files {
			m.Bytes += f.DataBytes
		}
		err = checkpoint.Commit(c.fs, folder, m)
	}
	if err != nil {
		before := "there is none before it"
		if c.last != "" {
			before = c.last + " stays"
		}
		warn("the checkpoint of step %d was not saved: %s. Training goes on, %s, and the next save is tried when it is time for it", t.Step, sentence(err), before)
		_ = checkpoint.Remove(c.fs, c.dir, name) // what there is of it; else the next save that works does so
	} else {
		c.last = name
		c.stale.Store(false)
		c.group.saved(t.Step)
		c.readFrom(name)
		if c.keep > 0 {
			if _, err := checkpoint.Prune(c.fs, c.dir, c.keep, c.best...); err != nil {
				warn("%s", sentence(err))
			}
		}
	}
	c.group.decided(t.Number, err)
	return err
}

// params are the hyperparameters of a store that can be written down.
func params(store *model.Store) (all []checkpoint.Param) {
	for path, value := range store.IterParams() {
		scope, key := model.SplitPath(path)
		if p, ok := checkpoint.NewParam(scope, key, value); ok {
			all = append(all, p)
		}
	}
	return all
}

// gomlxVersion is that of the module; "": this program does not know.
func gomlxVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/gomlx/gomlx" {
				return m.Version
			}
		}
	}
	return ""
}
