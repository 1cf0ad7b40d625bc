package kernel

import (
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
)

// IotaFunc writes elements start … start+n-1 of an iota to d: element i is (i / inner) mod size.
type IotaFunc func(d unsafe.Pointer, start, n, inner, size int)

// Iota finds the kernel of a type; nil: there is none.
func Iota(d dtypes.DType) IotaFunc {
	switch d {
	case dtypes.Float32:
		return counted(func(i int) float32 { return float32(i) })
	case dtypes.Float64:
		return counted(func(i int) float64 { return float64(i) })
	case dtypes.Int8:
		return counted(func(i int) int8 { return int8(i) })
	case dtypes.Int16:
		return counted(func(i int) int16 { return int16(i) })
	case dtypes.Int32:
		return counted(func(i int) int32 { return int32(i) })
	case dtypes.Int64:
		return counted(func(i int) int64 { return int64(i) })
	case dtypes.Uint8:
		return counted(func(i int) uint8 { return uint8(i) })
	case dtypes.Uint16:
		return counted(func(i int) uint16 { return uint16(i) })
	case dtypes.Uint32:
		return counted(func(i int) uint32 { return uint32(i) })
	case dtypes.Uint64:
		return counted(func(i int) uint64 { return uint64(i) })
	case dtypes.BFloat16:
		return counted(func(i int) bfloat16.BFloat16 { return bfloat16.FromFloat32(float32(i)) })
	case dtypes.Float16:
		return counted(func(i int) float16.Float16 { return float16.FromFloat32(float32(i)) })
	}
	return nil
}

func counted[T any](of func(int) T) IotaFunc {
	return func(p unsafe.Pointer, start, n, inner, size int) {
		d := unsafe.Slice((*T)(p), n)
		k, left := start/inner%size, inner-start%inner
		v := of(k)
		for i := range d {
			if left == 0 {
				if k++; k == size {
					k = 0
				}
				v, left = of(k), inner
			}
			d[i] = v
			left--
		}
	}
}
