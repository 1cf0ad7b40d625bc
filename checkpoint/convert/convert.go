// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package convert makes other formats of checkpoints, and checkpoints of other formats: one safetensors file, and GoMLX's own.
//
// What goes in is a checkpoint or a file. What comes out is the other. It may assume that one variable at a time fits into memory, and for GoMLX's format
// all of them.
package convert

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	gomlx "github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/state"
)

// value reads a variable of a checkpoint.
func value(c *checkpoint.Checkpoint, path string) (shapes.Shape, []byte, error) {
	shape, ok := c.Shape(path)
	if !ok {
		return shape, nil, errors.Errorf("epl: checkpoint %s has no variable %q", c.Folder, path)
	}
	b := make([]byte, state.Bytes(shape.DType, shape.Size()))
	return shape, b, c.Read(path, state.Whole(shape.Dimensions), b)
}

// ToSafetensors writes a checkpoint as one safetensors file. It is there, complete, or it is not.
func ToSafetensors(c *checkpoint.Checkpoint, f checkpoint.FS, file string, names Names) error {
	var all []checkpoint.Tensor
	paths := c.Paths()
	for path := range names {
		if !slices.Contains(paths, path) {
			return errors.Errorf("epl: checkpoint %s has no variable %q, which the names have", c.Folder, path)
		}
	}
	for _, path := range paths {
		shape, _ := c.Shape(path)
		t := checkpoint.Tensor{Name: path, Shape: shape, Read: func() ([]byte, error) {
			_, b, err := value(c, path)
			return b, err
		}}
		if names != nil {
			name, ok := names[path]
			if !ok {
				continue
			}
			var err error
			if t, err = name.turned(t); err != nil {
				return err
			}
			t.Name = name.Name
		}
		all = append(all, t)
	}
	return checkpoint.WriteTensors(f, file, all, map[string]string{"format": "pt"}) // the format's readers of other libraries ask for it
}

// FromSafetensors makes a checkpoint in a folder of them, of one safetensors file. It returns its name.
func FromSafetensors(f checkpoint.FS, file, dir string, names Names) (string, error) {
	all, done, err := checkpoint.ReadTensors(f, file)
	if err != nil {
		return "", err
	}
	defer done()
	paths := map[string]string{}
	for path, name := range names {
		paths[name.Name] = path
		if !slices.ContainsFunc(all, func(t checkpoint.Tensor) bool { return t.Name == name.Name }) {
			return "", errors.Errorf("epl: %s has no tensor %q, which the names have", file, name.Name)
		}
	}
	var to []checkpoint.Tensor
	for _, t := range all {
		if names != nil {
			path, ok := paths[t.Name]
			if !ok {
				continue
			}
			if t, err = names[path].turned(t); err != nil {
				return "", err
			}
			t.Name = path
		}
		if !strings.HasPrefix(t.Name, "/") {
			t.Name = "/" + t.Name
		}
		to = append(to, t)
	}
	return save(f, dir, to, nil)
}

// largest is how many bytes of variables are in memory at once, unless one is larger.
const largest = 1 << 30

// save makes a checkpoint of whole variables.
func save(f checkpoint.FS, dir string, all []checkpoint.Tensor, params []checkpoint.Param) (name string, err error) {
	m := &checkpoint.Manifest{Time: time.Now().UTC().Truncate(time.Second), EPL: version.Version, Go: runtime.Version(), Variables: len(all), Params: params}
	for _, t := range all {
		if t.Name == "/"+optimizer.GlobalStepVariableName && t.Shape.Size() == 1 {
			b, err := t.Read()
			if err != nil {
				return "", err
			}
			x := tensors.FromShape(t.Shape)
			if err := x.MutableBytes(func(to []byte) { copy(to, b) }); err != nil {
				return "", err
			}
			m.Step, _ = x.Value().(int64)
		}
	}
	if err := f.MkdirAll(dir); err != nil {
		return "", errors.Wrapf(err, "epl: the folder %s cannot be made", dir)
	}
	_, next, _, err := checkpoint.List(f, dir)
	if err != nil {
		return "", err
	}
	name = checkpoint.Name(next, m.Step)
	folder := filepath.Join(dir, name)
	var chunks []checkpoint.Chunk
	bytes := 0
	write := func() error {
		file, err := checkpoint.Write(f, folder, len(m.Files), chunks)
		m.Files = append(m.Files, file)
		m.Bytes += file.DataBytes
		chunks, bytes = nil, 0
		return err
	}
	for _, t := range all {
		b, err := t.Read()
		if err != nil {
			return "", err
		}
		chunks = append(chunks, checkpoint.Chunk{Piece: state.Piece{Path: t.Name, DType: t.Shape.DType, Shape: t.Shape.Dimensions, Region: state.Whole(t.Shape.Dimensions)}, Bytes: b})
		if bytes += len(b); bytes >= largest {
			if err := write(); err != nil {
				return "", err
			}
		}
	}
	if err := write(); err != nil {
		return "", err
	}
	return name, checkpoint.Commit(f, folder, m)
}

// ToGoMLX writes a checkpoint in GoMLX's format, into a folder of its checkpoints: GoMLX's handler loads it from there.
func ToGoMLX(c *checkpoint.Checkpoint, dir string) error {
	store := model.NewStore()
	handler, err := gomlx.Build(store).Dir(dir).ExcludeAllParams().Keep(-1).Done()
	if err != nil {
		return errors.WithMessage(err, "epl: GoMLX's format")
	}
	if has, err := handler.HasCheckpoints(); err != nil || has {
		if err == nil {
			err = errors.Errorf("epl: %s has checkpoints of GoMLX already; give another folder", dir)
		}
		return err
	}
	if handler, err = gomlx.Build(store).Dir(dir).Keep(-1).Done(); err != nil {
		return err
	}
	for _, p := range c.Manifest.Params {
		v, err := p.Typed()
		if err != nil {
			return errors.Wrapf(err, "epl: checkpoint %s, hyperparameter %q", c.Folder, p.Key)
		}
		store.SetParam(model.JoinPath(p.Scope, p.Key), v)
	}
	for _, path := range c.Paths() {
		shape, b, err := value(c, path)
		if err != nil {
			return err
		}
		x := tensors.FromShape(shape)
		if err := x.MutableBytes(func(to []byte) { copy(to, b) }); err != nil {
			return err
		}
		if _, err := store.CreateVariable(path, x); err != nil {
			return err
		}
	}
	return errors.WithMessage(handler.Save(), "epl: GoMLX's format")
}

// FromGoMLX makes a checkpoint in a folder of them, of the newest in a folder of GoMLX's checkpoints. It returns its name.
func FromGoMLX(f checkpoint.FS, from, dir string) (string, error) {
	if _, err := os.Stat(from); err != nil {
		return "", errors.Wrap(err, "epl: GoMLX's checkpoints")
	}
	store := model.NewStore()
	if _, err := gomlx.Load(store).Dir(from).Immediate().Done(); err != nil {
		return "", errors.WithMessagef(err, "epl: GoMLX's checkpoints in %s", from)
	}
	var all []checkpoint.Tensor
	for v := range store.IterVariables() {
		all = append(all, checkpoint.Tensor{Name: v.Path(), Shape: v.Shape(), Read: func() (b []byte, err error) {
			x, err := v.Value()
			if err == nil {
				err = x.ConstBytes(func(data []byte) { b = slices.Clone(data) })
			}
			return b, err
		}})
	}
	var params []checkpoint.Param
	for path, value := range store.IterParams() {
		scope, key := model.SplitPath(path)
		if p, ok := checkpoint.NewParam(scope, key, value); ok {
			params = append(params, p)
		}
	}
	return save(f, dir, all, params)
}
