// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"reflect"
	"sync"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/shm"
)

// Alloc returns a flat slice of n zeros in memory that the workers of this host share, and a function that gives it back:
// after that it must not be used. Collectives whose In (or Buf) comes from here on all ranks read each other's memory
// directly, and an all-reduce writes it too, which is several times as fast: it is where gradients should live. Everything
// else about the slice is ordinary. Without other workers on this host it is ordinary memory.
//
// The memory is not the garbage collector's. What is given back serves the next Alloc; if it is much, the system gets it.
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

// SharedMemory is the memory of which [World.Alloc] gives out flat slices: nil without other workers on this host, or if all communicate by MPI.
func (w *World) SharedMemory() *SharedMemory {
	if w.mpi || !w.hasNeighbours() {
		return nil
	}
	return &SharedMemory{}
}

// SharedMemory gives out memory that the workers of this host share.
type SharedMemory struct{}

// Take returns so many bytes, which hold anything, on cache lines of their own. They are not the garbage collector's. It is nil if there is not enough memory.
func (*SharedMemory) Take(bytes int) []byte {
	at, err := shm.Heap.Take(bytes)
	if err != nil {
		return nil
	}
	return unsafe.Slice((*byte)(at), bytes)
}

// Give takes back what Take returned.
func (*SharedMemory) Give(b []byte) { shm.Heap.Release(unsafe.Pointer(unsafe.SliceData(b)), len(b)) }

// InUse is how many bytes of it this process uses.
func (*SharedMemory) InUse() int { return shm.Heap.InUse() }

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
