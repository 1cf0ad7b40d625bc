// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import (
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
)

// Buffer is a caller's slice without its type parameter, so that one piece of code can move any of them.
type Buffer struct {
	Ptr   unsafe.Pointer
	Len   int // in elements
	Size  int // bytes of an element
	DType dtypes.DType
}

// BufferOf looks into a flat slice of one of GoMLX's element types.
func BufferOf(flat any) (b Buffer, ok bool) {
	switch s := flat.(type) {
	case []float32:
		return bufferOfSlice(s, dtypes.Float32), true
	case []float64:
		return bufferOfSlice(s, dtypes.Float64), true
	case []bfloat16.BFloat16:
		return bufferOfSlice(s, dtypes.BFloat16), true
	case []float16.Float16:
		return bufferOfSlice(s, dtypes.Float16), true
	case []int8:
		return bufferOfSlice(s, dtypes.Int8), true
	case []int16:
		return bufferOfSlice(s, dtypes.Int16), true
	case []int32:
		return bufferOfSlice(s, dtypes.Int32), true
	case []int64:
		return bufferOfSlice(s, dtypes.Int64), true
	case []int:
		return bufferOfSlice(s, dtypes.FromGenericsType[int]()), true
	case []uint8:
		return bufferOfSlice(s, dtypes.Uint8), true
	case []uint16:
		return bufferOfSlice(s, dtypes.Uint16), true
	case []uint32:
		return bufferOfSlice(s, dtypes.Uint32), true
	case []uint64:
		return bufferOfSlice(s, dtypes.Uint64), true
	case []bool:
		return bufferOfSlice(s, dtypes.Bool), true
	case []complex64:
		return bufferOfSlice(s, dtypes.Complex64), true
	case []complex128:
		return bufferOfSlice(s, dtypes.Complex128), true
	}
	return Buffer{}, false
}

func bufferOfSlice[T any](s []T, dtype dtypes.DType) Buffer {
	return Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(s)), Len: len(s), Size: int(unsafe.Sizeof(*new(T))), DType: dtype}
}

// Bytes returns the size of the whole.
func (b Buffer) Bytes() int64 { return int64(b.Len) * int64(b.Size) }

// At returns the address of an element.
func (b Buffer) At(i int) unsafe.Pointer { return unsafe.Add(b.Ptr, i*b.Size) }

// Part returns the elements [from, from+n).
func (b Buffer) Part(from, n int) Buffer {
	if n == 0 {
		return Buffer{Size: b.Size, DType: b.DType} // no pointer past the end
	}
	return Buffer{Ptr: b.At(from), Len: n, Size: b.Size, DType: b.DType}
}

// Overlaps tells whether two buffers share memory.
func (b Buffer) Overlaps(o Buffer) bool {
	if b.Len == 0 || o.Len == 0 {
		return false
	}
	x, y := uintptr(b.Ptr), uintptr(o.Ptr)
	return x < y+uintptr(o.Bytes()) && y < x+uintptr(b.Bytes())
}

// Same tells whether two buffers are the very same memory.
func (b Buffer) Same(o Buffer) bool { return b.Ptr == o.Ptr && b.Bytes() == o.Bytes() }

// Move copies n bytes, between places that do not overlap or are the same.
func Move(dst, src unsafe.Pointer, n int) {
	if dst == src {
		return
	}
	for n > moveBytes {
		copy(unsafe.Slice((*byte)(dst), moveBytes), unsafe.Slice((*byte)(src), moveBytes))
		dst, src, n = unsafe.Add(dst, moveBytes), unsafe.Add(src, moveBytes), n-moveBytes
	}
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}

// Copy is Move for bytes: as many as both have.
func Copy(dst, src []byte) {
	if n := min(len(dst), len(src)); n > 0 {
		Move(unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src)), n)
	}
}

// moveBytes is how much is copied at a time. Go writes 1 MB and more past the caches, where what is received would be read soon.
const moveBytes = 512 << 10

// BytesOf returns the memory of some elements.
func (b Buffer) BytesOf(from, to int) []byte {
	if from >= to {
		return nil
	}
	return unsafe.Slice((*byte)(b.At(from)), (to-from)*b.Size)
}

// Like returns n elements of the same type, in memory that is kept for the next time.
func (b Buffer) Like(memory *[]byte, n int) Buffer {
	*memory = Grow(*memory, n*b.Size)
	return Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(*memory)), Len: n, Size: b.Size, DType: b.DType}
}

// Grow returns memory of n bytes, the old if it is enough.
func Grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// MoveToAll copies n bytes to several places, block by block, so that they are read from memory once.
func MoveToAll(dst []unsafe.Pointer, src unsafe.Pointer, n int) {
	const block = 16 << 10
	for at := 0; at < n; at += block {
		for _, d := range dst {
			Move(unsafe.Add(d, at), unsafe.Add(src, at), min(block, n-at))
		}
	}
}

// Total adds up counts.
func Total(counts []int) (total int) {
	for _, k := range counts {
		total += k
	}
	return total
}
