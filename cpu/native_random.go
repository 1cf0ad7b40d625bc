// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/ir"
)

func init() { natives[ir.OpRNGBitGenerator] = randomBits }

// randomBits gives the bits of GoMLX's backend, which are those of math/rand/v2's PCG, on all threads: the state after n
// numbers is computed without making them.
func randomBits(op *ir.Op) nativeFunc {
	if s := op.Inputs[0].Shape; s.DType != dtypes.Uint64 || s.Size() < 2 {
		return nil
	}
	words := int(op.Inputs[0].Shape.Size())
	n := int(op.Outputs[1].Shape.ByteSize())
	const per = 1 << 12 // numbers of a task
	numbers := (n + 7) / 8
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		state := unsafe.Slice((*uint64)(in[0]), words)
		next := unsafe.Slice((*uint64)(out[0]), words)
		start := pcg{state[0], state[1]}
		to := unsafe.Slice((*byte)(out[1]), n)
		err := team.Run((numbers+per-1)/per, func(_ *pool.Worker, t int) {
			start.jump(uint64(t * per)).fill(to[t*per*8 : min(n, (t+1)*per*8)])
		})
		if err != nil {
			return err
		}
		end := start.jump(uint64(numbers))
		copy(next, state)
		// The backend reads the state, which is written with the highest byte first, as if it were the lowest.
		next[0], next[1] = bits.ReverseBytes64(end.hi), bits.ReverseBytes64(end.lo)
		return nil
	}
}

// pcg is the state of the generator: 128 bits.
type pcg struct{ hi, lo uint64 }

var (
	pcgMul = pcg{2549297995355413924, 4865540595714422341}
	pcgInc = pcg{6364136223846793005, 1442695040888963407}
)

func (a pcg) times(b pcg) pcg {
	hi, lo := bits.Mul64(a.lo, b.lo)
	return pcg{hi + a.hi*b.lo + a.lo*b.hi, lo}
}

func (a pcg) plus(b pcg) pcg {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return pcg{hi, lo}
}

// jump is the state after n numbers: n steps x → x·m + i are one such step.
func (a pcg) jump(n uint64) pcg {
	mul, inc := pcg{lo: 1}, pcg{}
	for m, i := pcgMul, pcgInc; n > 0; n >>= 1 {
		if n&1 == 1 {
			mul, inc = mul.times(m), inc.times(m).plus(i)
		}
		m, i = m.times(m), m.plus(pcg{lo: 1}).times(i)
	}
	return mul.times(a).plus(inc)
}

// fill writes the numbers that follow, eight bytes each.
func (a pcg) fill(to []byte) {
	for len(to) > 0 {
		a = a.times(pcgMul).plus(pcgInc)
		x := a.hi
		x ^= x >> 32
		x *= 0xda942042e4dd58b5
		x ^= x >> 48
		x *= a.lo | 1
		if len(to) >= 8 {
			binary.LittleEndian.PutUint64(to, x)
			to = to[8:]
			continue
		}
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], x)
		copy(to, last[:])
		return
	}
}
