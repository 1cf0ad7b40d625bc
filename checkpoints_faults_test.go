// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/checkpoint"
)

// faulty is the machine's file system, of which one call fails. A write that fails has written half.
type faulty struct {
	checkpoint.FS
	mu    sync.Mutex
	calls int
	at    int // the call that fails; -1: none
	err   error
	hit   bool
}

func (f *faulty) fault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.calls-1 != f.at {
		return nil
	}
	f.hit = true
	return &fs.PathError{Op: "write", Path: "somewhere", Err: f.err}
}

// from lets a call fail, counted from now.
func (f *faulty) from(at int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.at, f.err, f.hit = 0, at, err, false
}

func (f *faulty) MkdirAll(name string) error {
	if err := f.fault(); err != nil {
		return err
	}
	return f.FS.MkdirAll(name)
}

func (f *faulty) Rename(from, to string) error {
	if err := f.fault(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *faulty) Remove(name string) error {
	if err := f.fault(); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *faulty) SyncDir(name string) error {
	if err := f.fault(); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

func (f *faulty) List(name string) ([]string, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	return f.FS.List(name)
}

func (f *faulty) Open(name string) (checkpoint.Reader, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	return f.FS.Open(name)
}

func (f *faulty) Create(name string) (checkpoint.Writer, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	w, err := f.FS.Create(name)
	return faultyWriter{w, f}, err
}

type faultyWriter struct {
	checkpoint.Writer
	f *faulty
}

func (w faultyWriter) Write(b []byte) (int, error) {
	if err := w.f.fault(); err != nil {
		n, _ := w.Writer.Write(b[:len(b)/2])
		return n, err
	}
	return w.Writer.Write(b)
}

func (w faultyWriter) Sync() error {
	if err := w.f.fault(); err != nil {
		return err
	}
	return w.Writer.Sync()
}

// Whichever call of a save fails: training goes on, all checkpoints that are there load and are right, and the next save works.
func TestASaveMayFailAtAnyCall(t *testing.T) {
	dir := t.TempDir()
	files := &faulty{FS: checkpoint.OS, at: -1}
	r := savedPlans["ZeRO v1"].start(t, dir, func(b *epl.CheckpointBuilder) *epl.CheckpointBuilder { return epl.OnFS(b.Keep(2), files) })
	step, want := 0, map[int64]map[string]string{}
	save := func() error {
		step++
		r.train(t, step)
		want[int64(step)] = values(t, r.store)
		return r.saver.Save()
	}
	if err := save(); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for i, done := 0, 0; done < 2; i++ {
		at, fault := i/2, []error{syscall.ENOSPC, syscall.EIO}[i%2]
		var err error
		said := logged(func() {
			files.from(at, fault)
			err = save()
			if !files.hit {
				done++ // a save has fewer calls
			}
		})
		if err != nil {
			failed++
			if !strings.Contains(err.Error(), fault.Error()) || !strings.Contains(said, "Training goes on") {
				t.Errorf("call %d: %v; %s", at, err, said)
			}
		}
		files.from(-1, nil)
		all, _, damaged, e := checkpoint.List(checkpoint.OS, dir)
		if e != nil || len(damaged) > 0 || len(all) == 0 {
			t.Fatalf("call %d: %v, %v, %v", at, all, damaged, e)
		}
		if newest := all[len(all)-1].Manifest.Step; err == nil && newest != int64(step) {
			t.Errorf("call %d: step %d was saved, and the newest is that of step %d", at, step, newest)
		}
		if i%8 == 0 || err != nil && i%2 == 0 { // what is there is what a run loads
			for _, c := range all {
				if e := sameAsSaved(filepath.Join(dir, c.Name), want[c.Manifest.Step]); e != nil {
					t.Errorf("call %d: %s: %v", at, c.Name, e)
				}
			}
		}
		if err := save(); err != nil {
			t.Errorf("after call %d: %v", at, err)
		}
	}
	if failed < 20 {
		t.Errorf("%d saves have failed", failed)
	}
}
