// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"fmt"
	"slices"
	"sync"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/internal/hostmem"
	"github.com/easyparallel/epl/recovery"
	"github.com/easyparallel/epl/worker"
)

// openMemory opens the memory that the launcher of this worker holds, if the configuration asks for copies in it.
func openMemory(cfg *Config, lookup func(string) (string, bool)) (*memory, error) {
	if cfg.Recovery.Copies == 0 {
		return nil, nil
	}
	text, set := lookup(hostmem.Env)
	if !set {
		return nil, errors.New("epl: recovery.copies is 1, but no launcher holds memory for copies: the job is not elastic, or this is not Linux. " +
			"Start it by epl-launch with --num_workers MIN:MAX or --max_restarts, or leave recovery.copies unset")
	}
	name, err := hostmem.Parse(text)
	if err != nil {
		return nil, err
	}
	files, err := hostmem.Open(name)
	return &memory{name, files}, err
}

// memory is that of the launcher of this worker.
type memory struct {
	hostmem.Name
	files []*hostmem.File
}

func (m *memory) close() {
	if m != nil {
		for _, f := range m.files {
			_ = f.Close()
		}
	}
}

// copier copies the variables of a store to memory after every step: see recovery.copies.
type copier struct {
	c      *Checkpoint
	job    *worker.Job
	memory *memory
	store  int64       // which of the program's it is
	places []copyPlace // of each worker

	available func() (bytes int64, ok bool) // of memory, on this machine

	files   []*hostmem.File // of this worker: two
	far     sync.Mutex      // of what is read from other launchers
	old     []*hostmem.File // that the first complete step makes useless, on the first worker of the launcher
	offered []func()        // withdraw what others may read of the copies of an earlier generation

	copyPlan
	slots   [2]*recovery.Slot
	next    int // of the slots
	room    []byte
	running chan struct{} // closed when the copy of the last step is complete everywhere, or has failed; nil: none was begun
	failed  error
}

// copyPlace is where the copies of a worker are: which launcher holds them, and on which machine.
type copyPlace struct{ Memory, Host string }

// wait returns when no copy is under way.
func (k *copier) wait() {
	if k.running != nil {
		<-k.running
	}
}

// begin has the variables copied as they are after a step. It waits for the copy of the step before, and not for this one.
func (k *copier) begin(step int64) error {
	if k.wait(); k.failed != nil {
		return k.failed
	}
	all, err := k.c.savables()
	if err != nil {
		return err
	}
	if err := k.arrange(all); err != nil {
		return err
	}
	pieces, err := readings(all, k.mine)
	if err != nil {
		return err
	}
	m := &checkpoint.Manifest{Step: step, Variables: len(all), Params: params(k.c.store), Data: k.c.position()}
	unread := slices.ContainsFunc(all, func(v savable) bool { return v.unread })
	slot, running := k.next, make(chan struct{})
	k.next, k.running = 1-k.next, running
	go func() {
		defer close(running)
		defer release(pieces)
		withdraw, err := k.copy(k.slots[slot], slot, step, pieces, m)
		unread, err := k.agree(step, unread, err)
		withdraw()
		if k.failed = err; err == nil {
			k.job.Copied(step)
			if !unread {
				k.forget()
			}
		}
	}()
	return nil
}

// copy copies the pieces of this worker to a slot, and those that it keeps for others. withdraw is to be called when all workers have done so.
func (k *copier) copy(s *recovery.Slot, slot int, step int64, pieces []reading, m *checkpoint.Manifest) (withdraw func(), err error) {
	var offers []func()
	withdraw = func() {
		for _, w := range offers {
			w()
		}
	}
	if err := s.Begin(); err != nil {
		return withdraw, err
	}
	for i, p := range pieces {
		if beforeCopy != nil {
			beforeCopy()
		}
		if err := k.put(s, i, p); err != nil {
			return withdraw, errors.WithMessagef(err, "variable %q", p.Path)
		}
		p.Done()
	}
	for i := range k.lent {
		n := k.mine[i].Bytes()
		offers = append(offers, k.job.Offer(pieceName(slot, i), uint64(step), func() ([]byte, func(), error) {
			b := make([]byte, n)
			return b, func() {}, s.Get(i, b)
		}))
	}
	for i, p := range k.kept {
		b := k.buffer(p.Bytes())
		err := k.job.Fetch(p.from, pieceName(slot, p.index), uint64(step), b)
		if err == nil {
			err = s.Put(len(k.mine)+i, b)
		}
		if err != nil {
			return withdraw, errors.WithMessagef(err, "variable %q", p.Path)
		}
	}
	return withdraw, s.Commit(step, m)
}

// pieceName is that of a piece that another worker keeps, too.
func pieceName(slot, index int) string { return fmt.Sprintf("copy %d of slot %d", index, slot) }

// put copies a piece from its memory, or by a buffer where that is a device's.
func (k *copier) put(s *recovery.Slot, i int, p reading) error {
	if p.View != nil {
		if b := p.View(p.Region); b != nil {
			return s.Put(i, b)
		}
	}
	b := k.buffer(p.Bytes())
	if err := p.Read(p.Region, b); err != nil {
		return err
	}
	return s.Put(i, b)
}

// buffer is memory for one piece.
func (k *copier) buffer(n int) []byte {
	if len(k.room) < n {
		k.room = make([]byte, n)
	}
	return k.room[:n]
}

// agree returns when all workers have copied a step, or why not all have. Only then the copy of the step before may be overwritten. unread tells whether variables of any worker
// are still where they were loaded from.
func (k *copier) agree(step int64, unread bool, mine error) (_ bool, err error) {
	sum := int64(k.layout >> 1)
	largest := []int64{0, 0, sum, -sum, step, -step}
	if mine != nil {
		largest[0] = 1
	}
	if unread {
		largest[1] = 1
	}
	err = k.job.Largest(largest)
	switch {
	case mine != nil:
		err = errors.WithMessagef(mine, "epl: recovery.copies: step %d cannot be copied", step)
	case err != nil:
	case largest[0] != 0:
		err = errors.Errorf("epl: recovery.copies: another worker cannot copy step %d; its own message says why", step)
	case largest[2] != -largest[3] || largest[4] != -largest[5]:
		err = errors.New("epl: recovery.copies: the variables or the steps of this worker are not those of the others; all workers must run the same program, and set the same variables")
	}
	return largest[1] != 0, err
}

// forget gives back the memory of copies of earlier generations.
func (k *copier) forget() {
	for _, withdraw := range k.offered {
		withdraw()
	}
	for _, f := range k.old {
		_ = f.Reserve(0)
	}
	k.old, k.offered = nil, nil
}

// distrust gives up the copies of steps that were not checked, when devices are found to hold different bits: a job must not go on from those.
func (e *Env) distrust() {
	if e.cfg.Reliability.CheckEvery == 1 {
		return // steps are copied after they were checked
	}
	for _, c := range e.savers {
		if k := c.copies; k != nil {
			k.wait()
			for _, f := range k.files {
				_ = f.Reserve(0)
			}
		}
	}
}

// arrange decides who copies what, and makes the slots for it, if variables are not where they were.
func (k *copier) arrange(all []savable) error {
	loose := func(v savable) bool { return !v.equal } // the first worker's value counts
	if sum := layout(all, loose); sum != k.layout {
		k.copyPlan = planCopies(variablesOf(all, loose), k.places, k.c.group.workerOf, k.job.Worker)
		k.layout = sum
	}
	if k.slots[k.next] == nil || k.slots[k.next].Of.Layout != k.layout {
		return k.makeSlot()
	}
	return nil
}

// roomForCopies refuses copies of a size, which each of some workers makes two of, if the machine has too little memory: to run out of it later would end the workers without a word.
func roomForCopies(size int64, workers int, available func() (bytes int64, ok bool)) error {
	need := 2 * int64(workers) * size
	if free, ok := available(); ok && free < need {
		return errors.Errorf("epl: recovery.copies needs about %d MB of memory on this machine, for two copies of what its workers have (%d), and %d MB are available; "+
			"leave recovery.copies unset, use more machines, or let a split or ZeRO share the state among them", need>>20, workers, free>>20)
	}
	return nil
}

// makeSlot makes the slot for the next copy. The other one stays as it is: the copy of the step before is in it.
func (k *copier) makeSlot() error {
	pieces := slices.Clone(k.mine)
	for _, p := range k.kept {
		pieces = append(pieces, p.Piece)
	}
	s, err := recovery.NewSlot(k.files[k.next], recovery.Step{Generation: k.memory.Began, Worker: int64(k.job.Worker), Store: k.store, Layout: k.layout}, pieces)
	if err != nil {
		return err
	}
	if k.slots[1-k.next] == nil { // they are the first of this worker
		sharing := 0
		for _, p := range k.places {
			if p.Host == k.places[k.job.Worker].Host {
				sharing++
			}
		}
		if err := roomForCopies(s.Size(), sharing, k.available); err != nil {
			return err
		}
	}
	k.slots[k.next] = s
	return errors.WithMessagef(s.Reserve(), "epl: recovery.copies: %d MB of memory cannot be had", s.Size()>>20)
}
