// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"reflect"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/shm"
)

// Alloc returns a flat slice of n zeros in memory that the workers of this host share, and a function that gives it back:
// after that it must not be used. Collectives whose In (or Buf) comes from here on all ranks read each other's memory
// directly, and an all-reduce writes it too, which is several times as fast: it is where gradients should live. Everything
// else about the slice is ordinary. Without other workers on this host it is ordinary memory.
//
// The memory is not the garbage collector's. What is given back serves the next Alloc; it stays with the process.
func (w *World) Alloc(dtype dtypes.DType, n int) (flat any, free func(), err error) {
	t, ok := sliceTypes[dtype]
	switch {
	case !ok:
		return nil, nil, errors.Errorf("epl: %s has no flat slice; use one of GoMLX's element types that have a Go type", dtype)
	case n < 0:
		return nil, nil, errors.Errorf("epl: a slice of %d elements is impossible", n)
	case n == 0 || !w.hasNeighbours():
		return reflect.MakeSlice(t, n, n).Interface(), func() {}, nil
	}
	bytes := n * int(t.Elem().Size())
	at, err := shm.Heap.Alloc(bytes)
	if err != nil {
		return nil, nil, errors.WithMessagef(err, "epl: %d elements of %s cannot be allocated", n, dtype)
	}
	var once sync.Once
	return reflect.SliceAt(t.Elem(), at, n).Interface(), func() { once.Do(func() { shm.Heap.Release(at, bytes) }) }, nil
}

// hasNeighbours tells whether other workers live on this host.
func (w *World) hasNeighbours() bool {
	places := w.base.Layout.Workers
	for i, p := range places {
		if i != w.base.Layout.Worker && p.Host == places[w.base.Layout.Worker].Host {
			return true
		}
	}
	return false
}

// sliceTypes has the type of flat slices of each element type.
var sliceTypes = func() map[dtypes.DType]reflect.Type {
	all := map[dtypes.DType]reflect.Type{}
	for _, d := range []dtypes.DType{dtypes.Bool, dtypes.Int8, dtypes.Int16, dtypes.Int32, dtypes.Int64,
		dtypes.Uint8, dtypes.Uint16, dtypes.Uint32, dtypes.Uint64, dtypes.Float16, dtypes.BFloat16, dtypes.Float32, dtypes.Float64,
		dtypes.Complex64, dtypes.Complex128} {
		all[d] = reflect.SliceOf(d.GoType())
	}
	return all
}()
