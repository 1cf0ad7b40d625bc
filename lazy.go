// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"sync"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/record"
	"github.com/easyparallel/epl/state"
)

// Lazy makes a tensor whose value is read when it is first used, and only once. Until then it is its shape, which is all that a plan needs: a program that loads
// its weights this way reads none of them under "epl plan". read may be called while a step runs. In a job of several workers the first one's
// value counts, as of any variable that a program sets.
//
//	value, err := env.Lazy(shapes.Make(dtypes.Float32, 768, 3072), func() (*tensors.Tensor, error) { return tensors.Load(file) })
//	…
//	_, err = store.CreateVariable("/layer_0/weights", value)
func (e *Env) Lazy(shape shapes.Shape, read func() (*tensors.Tensor, error)) (*tensors.Tensor, error) {
	at := record.Here()
	if !shape.Ok() || read == nil {
		return nil, errors.Errorf("epl: Lazy at %s: give it the shape of the tensor, and what reads it", at)
	}
	once := sync.OnceValues(func() (*tensors.Tensor, error) {
		value, err := read()
		switch {
		case err != nil:
			return nil, err
		case value == nil:
			return nil, errors.Errorf("epl: Lazy at %s: a tensor %s was to be read, and there is none", at, shape)
		case !value.Shape().Equal(shape):
			return nil, errors.Errorf("epl: Lazy at %s: a tensor %s was to be read, and it is %s", at, shape, value.Shape())
		}
		return value, nil
	})
	return tensors.FromBuffer(e.runner.From(shape, func(want state.Region, to []byte) error {
		value, err := once()
		if err != nil {
			return err
		}
		return cutOut(value, want, to)
	}, false))
}

// cutOut copies a region of a tensor.
func cutOut(t *tensors.Tensor, want state.Region, to []byte) (err error) {
	shape := t.Shape()
	if e := t.ConstBytes(func(b []byte) {
		err = state.Cut(shape.DType, shape.Dimensions, to, want, b, state.Whole(shape.Dimensions))
	}); e != nil {
		return e
	}
	return err
}
