package comm

import (
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
)

// buffer is a caller's slice without its type parameter, so that one piece of code can move any of them.
type buffer struct {
	ptr   unsafe.Pointer
	len   int // in elements
	size  int // bytes of an element
	dtype dtypes.DType
}

// bufferOf looks into a flat slice of one of GoMLX's element types.
func bufferOf(flat any) (b buffer, ok bool) {
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
	return buffer{}, false
}

func bufferOfSlice[T any](s []T, dtype dtypes.DType) buffer {
	return buffer{ptr: unsafe.Pointer(unsafe.SliceData(s)), len: len(s), size: int(unsafe.Sizeof(*new(T))), dtype: dtype}
}

// bytes returns the size of the whole.
func (b buffer) bytes() int64 { return int64(b.len) * int64(b.size) }

// at returns the address of an element.
func (b buffer) at(i int) unsafe.Pointer { return unsafe.Add(b.ptr, i*b.size) }

// part returns the elements [from, from+n).
func (b buffer) part(from, n int) buffer {
	if n == 0 {
		return buffer{size: b.size, dtype: b.dtype} // no pointer past the end
	}
	return buffer{ptr: b.at(from), len: n, size: b.size, dtype: b.dtype}
}

// overlaps tells whether two buffers share memory.
func (b buffer) overlaps(o buffer) bool {
	if b.len == 0 || o.len == 0 {
		return false
	}
	x, y := uintptr(b.ptr), uintptr(o.ptr)
	return x < y+uintptr(o.bytes()) && y < x+uintptr(b.bytes())
}

// same tells whether two buffers are the very same memory.
func (b buffer) same(o buffer) bool { return b.ptr == o.ptr && b.bytes() == o.bytes() }

// move copies n bytes.
func move(dst, src unsafe.Pointer, n int) {
	if dst != src {
		copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
	}
}

// bytesOf returns the memory of some elements.
func (b buffer) bytesOf(from, to int) []byte {
	if from >= to {
		return nil
	}
	return unsafe.Slice((*byte)(b.at(from)), (to-from)*b.size)
}

// like returns n elements of the same type, in memory that is kept for the next time.
func (b buffer) like(memory *[]byte, n int) buffer {
	*memory = grow(*memory, n*b.size)
	return buffer{ptr: unsafe.Pointer(unsafe.SliceData(*memory)), len: n, size: b.size, dtype: b.dtype}
}

// grow returns memory of n bytes, the old if it is enough.
func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// moveToAll copies n bytes to several places, block by block, so that they are read from memory once.
func moveToAll(dst []unsafe.Pointer, src unsafe.Pointer, n int) {
	const block = 16 << 10
	for at := 0; at < n; at += block {
		for _, d := range dst {
			move(unsafe.Add(d, at), unsafe.Add(src, at), min(block, n-at))
		}
	}
}

func sum(counts []int) (total int) {
	for _, k := range counts {
		total += k
	}
	return total
}
