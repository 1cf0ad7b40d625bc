// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/checkpoint"
)

// Whatever the plan, training with a lazy tensor is training with the tensor, and it is read when a step needs it.
func TestALazyTensorIsReadOnceWhenItIsUsed(t *testing.T) {
	weights := make([]float32, 5*7)
	for i := range weights {
		weights[i] = float32(i%9)/8 - 0.5
	}
	tensor := func() (*tensors.Tensor, error) { return tensors.FromFlatDataAndDimensions(weights, 5, 7), nil }
	for _, name := range []string{"one device", "replicas", "ZeRO v2", "split, uneven", "stages", "offload"} {
		t.Run(name, func(t *testing.T) {
			var reads atomic.Int64
			trained := func(lazy bool) map[string]string {
				r := savedPlans[name].start(t, t.TempDir(), nil)
				value, err := tensor()
				if lazy {
					value, err = r.env.Lazy(value.Shape(), func() (*tensors.Tensor, error) {
						reads.Add(1)
						return tensor()
					})
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.store.CreateVariable("/one/dense/weights", value); err != nil {
					t.Fatal(err)
				}
				if n := reads.Load(); n != 0 {
					t.Errorf("it was read %d times before the first step", n)
				}
				r.train(t, 2)
				return values(t, r.store)
			}
			sameValues(t, trained(false), trained(true), 0)
			if n := reads.Load(); n != 1 {
				t.Errorf("it was read %d times", n)
			}
		})
	}
}

func TestALazyTensorThatCannotBeReadIsAnErrorWhenItIsUsed(t *testing.T) {
	env := newEnv(t, nil)
	shape := shapes.Make(dtypes.Float32, 2)
	for want, read := range map[string]func() (*tensors.Tensor, error){
		"no such disk":  func() (*tensors.Tensor, error) { return nil, errors.New("no such disk") },
		"there is none": func() (*tensors.Tensor, error) { return nil, nil },
		"(Float32)[3]":  func() (*tensors.Tensor, error) { return tensors.FromValue([]float32{1, 2, 3}), nil },
		"lazy_test.go:": func() (*tensors.Tensor, error) { return tensors.FromValue([]int32{1, 2}), nil },
		"what reads it": nil,
	} {
		value, err := env.Lazy(shape, read)
		if err == nil {
			err = value.ConstFlatData(func(any) {})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := env.Lazy(shapes.Shape{}, func() (*tensors.Tensor, error) { return nil, nil }); err == nil || !strings.Contains(err.Error(), "give it the shape") {
		t.Error(err)
	}
}

// countingFS counts bytes of data that are read, without headers, and what is changed.
type countingFS struct {
	checkpoint.FS
	read    atomic.Int64
	changes atomic.Int64
}

func (f *countingFS) MkdirAll(name string) error {
	f.changes.Add(1)
	return f.FS.MkdirAll(name)
}

func (f *countingFS) Create(name string) (checkpoint.Writer, error) {
	f.changes.Add(1)
	return f.FS.Create(name)
}

func (f *countingFS) Open(name string) (checkpoint.Reader, error) {
	r, err := f.FS.Open(name)
	if err != nil || filepath.Ext(name) != ".safetensors" {
		return r, err
	}
	var length [8]byte
	_, err = r.ReadAt(length[:], 0)
	return countingReader{r, f, 8 + int64(binary.LittleEndian.Uint64(length[:]))}, err
}

type countingReader struct {
	checkpoint.Reader
	fs   *countingFS
	data int64 // where they begin
}

func (r countingReader) ReadAt(b []byte, at int64) (int, error) {
	if end := at + int64(len(b)); end > r.data {
		r.fs.read.Add(end - max(at, r.data))
	}
	return r.Reader.ReadAt(b, at)
}

// A plan needs the shapes of a checkpoint. Only the global step is read, which the loop asks for, and what else the program asks for. Nothing is written.
func TestAPlanReadsNoDataOfACheckpoint(t *testing.T) {
	p, dir := savedPlans["ZeRO v2"], t.TempDir()
	r := p.start(t, dir, nil)
	r.train(t, 2)
	if err := r.saver.Save(); err != nil {
		t.Fatal(err)
	}
	want := values(t, r.store)
	if err := r.env.Close(); err != nil {
		t.Fatal(err)
	}

	t.Setenv(epl.EnvPlanOut, filepath.Join(t.TempDir(), "plan"))
	files := &countingFS{FS: checkpoint.OS}
	on := func(b *epl.CheckpointBuilder) *epl.CheckpointBuilder { return epl.OnFS(b, files) }
	r = p.start(t, dir, on)
	if err := r.saver.Save(); err != nil { // some programs save before they train
		t.Error(err)
	}
	if _, err := r.loop.RunToGlobalStep(r.env.Dataset(savedBatches{}), 3); err == nil || !strings.Contains(err.Error(), "EPL_PLAN_OUT is set") {
		t.Fatalf("%+v", err)
	}
	if r.saver.Step() != 2 || r.loop.LoopStep != 2 {
		t.Errorf("loaded step %d, the loop is at %d", r.saver.Step(), r.loop.LoopStep)
	}
	if n := files.read.Load(); n != 8 {
		t.Errorf("%d bytes of data were read, and the global step has 8", n)
	}
	const path = "/one/dense/weights"
	var got string
	if err := r.store.GetVariable(path).MustValue().ConstBytes(func(b []byte) { got = string(b) }); err != nil || got != want[path] {
		t.Errorf("the weights are not those that were saved: %v", err)
	}
	if n := files.read.Load(); n != 8+5*7*4 {
		t.Errorf("%d bytes of data were read, and the global step with the weights has %d", n, 8+5*7*4)
	}

	p.start(t, filepath.Join(t.TempDir(), "new"), on)
	if n := files.changes.Load(); n != 0 {
		t.Errorf("%d files and folders were made", n)
	}
}
