// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/pkg/errors"
)

// Rate is how fast a device works, by the size of the work: a large product reaches more flops per second than a small one. Between
// points it is interpolated on logarithmic scales, beyond them it stays as it is. In JSON it is an object, {"1e6": 2e9, "1e9": 2e11},
// or a number, if the size does not matter.
type Rate []Point

// Point is one of the sizes that a rate is known for.
type Point struct {
	Size      float64 // flops of an op, or bytes that it touches
	PerSecond float64
}

// Constant is a rate that does not depend on the size.
func Constant(perSecond float64) Rate { return Rate{{1, perSecond}} }

// At is the rate for work of a size; 0 if it is not known for any.
func (r Rate) At(size float64) float64 {
	if len(r) == 0 {
		return 0
	}
	i, _ := slices.BinarySearchFunc(r, size, func(p Point, s float64) int { return cmp.Compare(p.Size, s) })
	switch i {
	case 0:
		return r[0].PerSecond
	case len(r):
		return r[i-1].PerSecond
	}
	a, b := r[i-1], r[i]
	t := math.Log(size/a.Size) / math.Log(b.Size/a.Size)
	return a.PerSecond * math.Pow(b.PerSecond/a.PerSecond, t)
}

// Scaled is the rate of a device that is so many times as fast.
func (r Rate) Scaled(by float64) Rate {
	s := slices.Clone(r)
	for i := range s {
		s[i].PerSecond *= by
	}
	return s
}

// MarshalJSON implements json.Marshaler.
func (r Rate) MarshalJSON() ([]byte, error) {
	if len(r) == 1 {
		return json.Marshal(r[0].PerSecond)
	}
	b := []byte{'{'}
	for i, p := range r {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendQuote(b, strconv.FormatFloat(p.Size, 'g', 4, 64))
		b = append(b, ": "...)
		b = strconv.AppendFloat(b, p.PerSecond, 'g', 4, 64)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rate) UnmarshalJSON(text []byte) error {
	var constant float64
	if json.Unmarshal(text, &constant) == nil {
		*r = Constant(constant)
		return r.check()
	}
	var points map[string]float64
	if err := json.Unmarshal(text, &points); err != nil {
		return errors.Errorf(`%s is no rate: write a number per second, or an object of sizes and numbers, {"1e6": 2e9, "1e9": 2e11}`, text)
	}
	*r = nil
	for size, perSecond := range points {
		s, err := strconv.ParseFloat(size, 64)
		if err != nil {
			return errors.Errorf("%q is no size of a rate: write a number, such as 1e6", size)
		}
		*r = append(*r, Point{s, perSecond})
	}
	slices.SortFunc(*r, func(a, b Point) int { return cmp.Compare(a.Size, b.Size) })
	return r.check()
}

// check finds numbers that cannot be.
func (r Rate) check() error {
	if len(r) == 0 {
		return errors.New("a rate has no points; write at least one")
	}
	for i, p := range r {
		if p.Size <= 0 || p.PerSecond <= 0 || math.IsInf(p.Size*p.PerSecond, 0) || math.IsNaN(p.Size*p.PerSecond) {
			return errors.Errorf("a rate of %g per second at size %g: both have to be more than 0", p.PerSecond, p.Size)
		}
		if i > 0 && r[i-1].Size == p.Size {
			return errors.Errorf("a rate has two points of size %g; write one", p.Size)
		}
	}
	return nil
}
