// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/state"
)

// Difference is what differs in a variable of two checkpoints.
type Difference struct {
	Path string
	Text string // why they cannot be compared; "": they can
	// Elements of Of differ, by Most at most; Most is NaN where they are no numbers.
	Elements, Of int
	Most         float64
}

// Compare returns what differs between two checkpoints, by path. It reads both, a part at a time.
func Compare(a, b *Checkpoint) (all []Difference, _ error) {
	paths := append(a.Paths(), b.Paths()...)
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		x, inA := a.Shape(path)
		y, inB := b.Shape(path)
		switch {
		case !inA || !inB:
			text := "only in the first"
			if inB {
				text = "only in the second"
			}
			all = append(all, Difference{Path: path, Text: text})
			continue
		case !x.Equal(y):
			all = append(all, Difference{Path: path, Text: fmt.Sprintf("%s in the first, %s in the second", x, y)})
			continue
		}
		d := Difference{Path: path, Of: x.Size()}
		whole := state.Whole(x.Dimensions)
		for from := 0; from < whole.To; {
			r := whole
			if !x.DType.IsPacked() {
				r.From, r.To = from, min(from+Block, whole.To)
			}
			from = r.To
			p, q := make([]byte, state.Bytes(x.DType, r.Size())), make([]byte, state.Bytes(x.DType, r.Size()))
			if err := a.Read(path, r, p); err != nil {
				return nil, err
			}
			if err := b.Read(path, r, q); err != nil {
				return nil, err
			}
			d.add(x.DType, p, q)
		}
		if d.Elements > 0 {
			all = append(all, d)
		}
	}
	return all, nil
}

// add compares some elements.
func (d *Difference) add(dtype dtypes.DType, p, q []byte) {
	size := max(int(dtype.Size()), 1)
	for i := 0; i < len(p); i += size {
		if x, y := p[i:i+size], q[i:i+size]; !slices.Equal(x, y) {
			d.Elements++
			if diff := math.Abs(number64(dtype, x) - number64(dtype, y)); math.IsNaN(diff) || diff > d.Most {
				d.Most = diff
			}
		}
	}
}

// number64 is an element as a float64; NaN if it is of a type that is not compared.
func number64(dtype dtypes.DType, b []byte) float64 {
	var bits uint64
	for i, x := range b {
		bits |= uint64(x) << (8 * i)
	}
	switch dtype {
	case dtypes.Float32:
		return float64(math.Float32frombits(uint32(bits)))
	case dtypes.Float64:
		return math.Float64frombits(bits)
	case dtypes.Float16:
		return float64(float16.FromBits(uint16(bits)).Float32())
	case dtypes.BFloat16:
		return float64(bfloat16.FromBits(uint16(bits)).Float32())
	case dtypes.Int8:
		return float64(int8(bits))
	case dtypes.Int16:
		return float64(int16(bits))
	case dtypes.Int32:
		return float64(int32(bits))
	case dtypes.Int64:
		return float64(int64(bits))
	case dtypes.Uint8, dtypes.Uint16, dtypes.Uint32, dtypes.Uint64, dtypes.Bool:
		return float64(bits)
	}
	return math.NaN()
}
