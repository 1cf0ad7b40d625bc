// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package cpu is EPL's engine for CPU devices: it compiles a segment of a program into fused, vectorised steps.
//
// What goes in is a segment of the IR. Reshapes, transposes, broadcasts and slices become views: strides instead of
// copies (view.go). Elementwise ops and reductions are fused into groups (fuse.go), which run block by block with
// intermediate values in registers that stay in the fastest caches (code.go, interp.go). Products absorb the strides of
// their operands (dot.go, package gemm). What the engine does not know is run by GoMLX's own backend, op by op
// (fallback.go). Memory is planned once (memory.go): intermediate tensors share an arena of the device, donated inputs
// are updated in place.
//
// Fusing changes no bit: a fused program computes what its ops compute one by one, on one thread or many.
package cpu

import (
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cpu/isa"
	"github.com/easyparallel/epl/cpu/pool"
)

// Backend is a CPU device. It implements compute.Backend; programs that are built op by op run on GoMLX's own backend,
// segments of the IR on the engine: see [Backend.Compile].
type Backend struct {
	compute.Backend // builds programs op by op, and runs what the engine does not know
	team            *pool.Pool
	opts            options

	mu    sync.Mutex // one segment at a time
	arena arena
	free  freeList

	adopted   atomic.Int64 // bytes of common memory that count as its own
	adoptions adoptions

	// recent are the plans that were made last.
	recent struct {
		sync.Mutex
		plans []*plan
	}
}

// Option changes a device.
type Option func(*Backend)

// New makes a device of so many threads; 0: as many as there are cores. op is the backend that runs what the engine
// does not know: GoMLX's pure-Go one.
func New(op compute.Backend, threads int, opts ...Option) *Backend {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	b := &Backend{Backend: op, team: pool.New(threads), opts: everything}
	for _, set := range opts {
		set(b)
	}
	return b
}

// Name implements compute.Backend.
func (b *Backend) Name() string { return "cpu" }

// String implements compute.Backend.
func (b *Backend) String() string { return "cpu" }

// Description implements compute.Backend.
func (b *Backend) Description() string {
	threads := "1 thread"
	if n := b.team.Threads(); n > 1 {
		threads = fmt.Sprintf("%d threads", n)
	}
	return fmt.Sprintf("EPL's engine for CPUs, %s, %s", threads, isa.Current())
}

// Finalize implements compute.Backend.
func (b *Backend) Finalize() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Backend.IsFinalized() {
		return
	}
	b.team.Close()
	b.arena.free()
	b.free.close()
	b.adoptions.release()
	b.recent.Lock()
	b.recent.plans = nil
	b.recent.Unlock()
	b.Backend.Finalize()
}

// HasSharedBuffers implements compute.DataInterface.
func (b *Backend) HasSharedBuffers() bool { return true }

// Allocated is how much memory the device had for tensors when it had most since it was last asked, in bytes.
func (b *Backend) Allocated() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := &b.free
	f.mu.Lock()
	defer f.mu.Unlock()
	most := f.most
	f.most = f.used
	return int64(most+len(b.arena.bytes)) + b.adopted.Load()
}

// NewSharedBuffer implements compute.DataInterface.
func (b *Backend) NewSharedBuffer(_ compute.DeviceNum, shape shapes.Shape) (compute.Buffer, any, error) {
	buf := b.newBuffer(shape)
	flat, err := buf.Data()
	return buf, flat, err
}

// BufferFromFlatData implements compute.DataInterface.
func (b *Backend) BufferFromFlatData(_ compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	if t := reflect.TypeOf(flat); t == nil || t.Kind() != reflect.Slice || dtypes.FromGoType(t.Elem()) != shape.DType && t.Elem() != shape.DType.GoType() {
		return nil, errors.Errorf("epl: cpu: %T does not hold elements of %s", flat, shape)
	}
	from := anyBytes(flat, shape.DType)
	buf := b.newBuffer(shape)
	if len(from) != len(buf.bytes) {
		return nil, errors.Errorf("epl: cpu: %d bytes were given for %s, which has %d", len(from), shape, len(buf.bytes))
	}
	copy(buf.bytes, from)
	return buf, nil
}

// Buffer is a tensor of the device. It implements compute.Buffer.
type Buffer struct {
	backend *Backend
	shape   shapes.Shape
	bytes   []byte
	hold    *hold          // nil: its memory is Go's
	owner   compute.Buffer // of GoMLX's backend, if that has the memory
	final   bool
	part    bool                    // its memory is another buffer's: see [Backend.Part]
	adopted *adopted                // nil: its memory is the device's
	donated bool                    // to an execution: who finalizes it again does no harm
	sharing atomic.Pointer[sharing] // nil: its memory is its own
}

var _ compute.Buffer = (*Buffer)(nil)

func (b *Backend) newBuffer(shape shapes.Shape) *Buffer {
	bytes := b.free.take(int(shape.ByteSize()))
	return &Buffer{backend: b, shape: shape, bytes: bytes, hold: b.free.hold(bytes)}
}

// Backend implements compute.Buffer.
func (b *Buffer) Backend() compute.Backend { return b.backend }

// Shape implements compute.Buffer.
func (b *Buffer) Shape() (shapes.Shape, error) { return b.shape, nil }

// DeviceNum implements compute.Buffer.
func (b *Buffer) DeviceNum() (compute.DeviceNum, error) { return 0, nil }

// Finalize implements compute.Buffer.
func (b *Buffer) Finalize() error {
	if b.donated {
		return nil
	}
	if b.final {
		return errors.Errorf("epl: cpu: a buffer of %s is finalized twice", b.shape)
	}
	b.final = true
	if b.owner != nil {
		return b.owner.Finalize()
	}
	b.giveBack()
	return nil
}

// Data implements compute.Buffer.
func (b *Buffer) Data() (any, error) {
	if b.final {
		return nil, errors.Errorf("epl: cpu: a buffer of %s is used after it was finalized", b.shape)
	}
	return flatOf(b.bytes, b.shape), nil
}

// ToFlatData implements compute.Buffer.
func (b *Buffer) ToFlatData(flat any) error {
	if b.final {
		return errors.Errorf("epl: cpu: a buffer of %s is used after it was finalized", b.shape)
	}
	to := anyBytes(flat, b.shape.DType)
	if len(to) != len(b.bytes) {
		return errors.Errorf("epl: cpu: %s has %d bytes, but there is room for %d", b.shape, len(b.bytes), len(to))
	}
	copy(to, b.bytes)
	return nil
}

// CopyToDevice implements compute.Buffer.
func (b *Buffer) CopyToDevice(compute.DeviceNum) (compute.Buffer, error) {
	flat, err := b.Data()
	if err != nil {
		return nil, err
	}
	return b.backend.BufferFromFlatData(0, flat, b.shape)
}

// flatOf sees memory as a slice of the elements of a shape.
func flatOf(bytes []byte, shape shapes.Shape) any {
	d := shape.DType
	if len(bytes) == 0 {
		return dtypes.MakeAnySlice(d, 0)
	}
	return dtypes.UnsafeAnySliceFromBytes(unsafe.Pointer(unsafe.SliceData(bytes)), d, shape.Size())
}

// anyBytes is the memory of a slice of elements.
func anyBytes(flat any, d dtypes.DType) []byte {
	v := reflect.ValueOf(flat)
	if v.Len() == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))
}
