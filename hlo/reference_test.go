// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo_test

import (
	"cmp"
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	_ "github.com/gomlx/compute/gobackend"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

var edges = []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1, -1, 0.5, 2.5, -2.5, 3e4, -1e-3}

// numbers draws those of an input. Kinds: "" a few around 0; positive; nonzero; bits: anything; indexN: 0 to N-1; =N: all the same; edge: NaN,
// infinities and so on; pairs0 and pairs1: all pairs of these; wild: indices beyond 0 to 4; nan and nans: one, some; lengths: 0, then 3.
func numbers(r *rand.Rand, v *ir.Value, kind string) any {
	d, n := v.Shape.DType, v.Shape.Size()
	flat := reflect.MakeSlice(reflect.SliceOf(d.GoType()), n, n)
	for i := range n {
		x := r.NormFloat64() * 1.5
		if d.IsInt() {
			x = float64(r.IntN(21) - 10)
		}
		if d.IsUnsigned() {
			x = float64(r.IntN(21))
		}
		if d == dtypes.Bool {
			x = float64(r.IntN(2))
		}
		switch {
		case kind == "positive":
			x = math.Abs(x) + 0.1
		case kind == "nonzero" && x == 0:
			x = 3
		case kind == "bits":
			x := reflect.ValueOf(r.Uint64())
			flat.Index(i).Set(x.Convert(d.GoType()))
			continue
		case kind == "edge":
			x = edges[i%len(edges)]
		case kind == "pairs0":
			x = edges[i/len(edges)%len(edges)]
		case kind == "pairs1":
			x = edges[i%len(edges)]
		case kind == "wild":
			x = float64(r.IntN(16) - 5)
		case kind == "nan" && i == 17 || kind == "nans" && i > 5 && i%7 == 0:
			x = math.NaN()
		case kind == "lengths":
			x = float64(i * 3)
		case strings.HasPrefix(kind, "index"):
			n, _ := strconv.Atoi(kind[len("index"):])
			x = float64(r.IntN(n))
		case strings.HasPrefix(kind, "="):
			x, _ = strconv.ParseFloat(kind[1:], 64)
		}
		set(flat.Index(i), x, r.NormFloat64())
	}
	return flat.Interface()
}

// set stores a number as whatever it is to be.
func set(to reflect.Value, x, imaginary float64) {
	switch to.Interface().(type) {
	case float16.Float16:
		to.Set(reflect.ValueOf(float16.FromFloat32(float32(x))))
	case bfloat16.BFloat16:
		to.Set(reflect.ValueOf(bfloat16.FromFloat32(float32(x))))
	case bool:
		to.SetBool(x != 0)
	case complex64, complex128:
		to.SetComplex(complex(x, imaginary))
	default:
		to.Set(reflect.ValueOf(x).Convert(to.Type()))
	}
}

// inputs of an example are the same in every run.
func inputs(e example, p *ir.Program) []any {
	r := rand.New(rand.NewPCG(7, uint64(len(e.params))))
	var in []any
	for i, param := range strings.Fields(e.params) {
		_, kind, _ := strings.Cut(param, ":")
		in = append(in, numbers(r, p.Main.Params[i], kind))
	}
	return in
}

// expected computes the outputs of an example.
func (e example) expected(p *ir.Program, in []any) (out []any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	if e.want != nil {
		return e.want(in), nil
	}
	backend, err := compute.NewWithConfig("go:ops_sequential") // so that panics are ours
	if err != nil {
		return nil, err
	}
	defer backend.Finalize()
	executable, err := emit.Program(backend, p)
	if err != nil {
		return nil, err
	}
	var buffers []compute.Buffer
	for i, v := range p.Main.Params {
		b, err := backend.BufferFromFlatData(0, in[i], v.Shape)
		if err != nil {
			return nil, err
		}
		buffers = append(buffers, b)
	}
	results, err := executable.Execute(buffers, nil, 0)
	if err != nil {
		return nil, err
	}
	for i, b := range results {
		flat := emptyOf(p.Main.Outputs[i])
		if err := b.ToFlatData(flat); err != nil {
			return nil, err
		}
		out = append(out, flat)
	}
	return out, nil
}

func emptyOf(v *ir.Value) any {
	return reflect.MakeSlice(reflect.SliceOf(v.Shape.DType.GoType()), v.Shape.Size(), v.Shape.Size()).Interface()
}

// differences says where two outputs differ by more than they may: integers not at all.
func differences(got, want any, tolerance float64) string {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	if g.Type() != w.Type() || g.Len() != w.Len() {
		return fmt.Sprintf("%d of %T, not %d of %T", g.Len(), got, w.Len(), want)
	}
	tolerance = cmp.Or(tolerance, 1e-5)
	wrong, first := 0, ""
	for i := range w.Len() {
		x, y := g.Index(i), w.Index(i)
		if !same(x.Interface(), y.Interface(), tolerance) {
			if wrong++; wrong <= 3 {
				first += fmt.Sprintf(" [%d] %v not %v;", i, show(x), show(y))
			}
		}
	}
	if wrong == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d differ:%s", wrong, w.Len(), first)
}

func show(v reflect.Value) any {
	if x, ok := float(v.Interface()); ok {
		return x
	}
	return v.Interface()
}

func float(x any) (float64, bool) {
	switch x := x.(type) {
	case float32:
		return float64(x), true
	case float64:
		return x, true
	case float16.Float16:
		return float64(x.Float32()), true
	case bfloat16.BFloat16:
		return float64(x.Float32()), true
	}
	return 0, false
}

func same(x, y any, tolerance float64) bool {
	switch y := y.(type) {
	case float16.Float16:
		tolerance = max(tolerance, 3e-3)
	case bfloat16.BFloat16:
		tolerance = max(tolerance, 2e-2)
	case float64:
		if tolerance < 5e-4 { // a larger one is for numbers that were less precise before
			tolerance /= 100
		}
	case complex64:
		x := x.(complex64)
		return close(float64(real(x)), float64(real(y)), tolerance) && close(float64(imag(x)), float64(imag(y)), tolerance)
	case complex128:
		x := x.(complex128)
		return close(real(x), real(y), tolerance) && close(imag(x), imag(y), tolerance)
	}
	a, ok := float(x)
	if !ok {
		return x == y
	}
	b, _ := float(y)
	return close(a, b, tolerance)
}

func close(x, y, tolerance float64) bool {
	return x == y || math.IsNaN(x) && math.IsNaN(y) || math.Abs(x-y) <= tolerance*max(1, math.Abs(y))
}

// What the pure-Go backend lacks.

func atan2(in []any) []any {
	pair := func(i, j int) any {
		x, y := reflect.ValueOf(in[i]), reflect.ValueOf(in[j])
		n := max(x.Len(), y.Len())
		if x.Len() == 2 && y.Len() == 3 { // [2,1] and [1,3]
			n = 6
		}
		out := reflect.MakeSlice(x.Type(), n, n)
		at := func(v reflect.Value, k int) float64 {
			switch v.Len() {
			case n:
			case 1:
				k = 0
			case 2:
				k /= 3
			case 3:
				k %= 3
			}
			return v.Index(k).Float()
		}
		for k := range n {
			out.Index(k).SetFloat(math.Atan2(at(x, k), at(y, k)))
		}
		return out.Interface()
	}
	var out []any
	for _, p := range [][2]int{{0, 1}, {0, 2}, {2, 1}, {3, 4}, {0, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}, {2, 2}} {
		if p == [2]int{11, 12} {
			out = append(out, []float32{})
			continue
		}
		out = append(out, pair(p[0], p[1]))
	}
	return out
}

// totalOrder compares bits: -NaN < -∞ < … < -0 < +0 < … < ∞ < NaN.
func totalOrder(op string) func(in []any) []any {
	key := func(x float32) int32 {
		b := int32(math.Float32bits(x))
		if b < 0 {
			b ^= math.MaxInt32
		}
		return b
	}
	return func(in []any) []any {
		x, y := in[0].([]float32), in[1].([]float32)
		out := make([]bool, len(x))
		for i := range x {
			c := cmp.Compare(key(x[i]), key(y[i]))
			out[i] = map[string]bool{"Equal": c == 0, "NotEqual": c != 0, "GreaterThan": c > 0, "GreaterOrEqual": c >= 0, "LessThan": c < 0, "LessOrEqual": c <= 0}[op]
		}
		return []any{out}
	}
}

func complexes(in []any) []any {
	re, im := in[0].([]float32), in[1].([]float32)
	n := len(re)
	x, conj, square, exp := make([]complex64, n), make([]complex64, n), make([]complex64, n), make([]complex64, n)
	realPart, imagPart, abs, equal := make([]float32, n), make([]float32, n), make([]float32, n), make([]bool, n)
	for i := range re {
		x[i] = complex(re[i], im[i])
		conj[i] = complex(re[i], -im[i])
		square[i] = x[i] * x[i]
		realPart[i], imagPart[i] = real(square[i]), -im[i]
		abs[i] = float32(cmplx.Abs(complex128(x[i])))
		exp[i] = complex64(cmplx.Exp(complex128(x[i])))
		equal[i] = im[i] == 0
	}
	return []any{x, conj, square, realPart, imagPart, abs, exp, equal}
}

func complexDoubles(in []any) []any {
	x, y := in[0].([]complex128), in[1].([]complex128)
	a, m, d, re := make([]complex128, 4), make([]complex128, 4), make([]complex128, 4), make([]float64, 4)
	for i := range x {
		a[i], m[i], d[i], re[i] = x[i]+y[i], x[i]*y[i], x[i]/y[i], real(x[i])
	}
	return []any{a, m, d, re}
}

// scatterWild leaves out what is beyond the end.
func scatterWild(op string) func(in []any) []any {
	return func(in []any) []any {
		out := append([]float32(nil), in[0].([]float32)...)
		for i, at := range in[1].([]int32) {
			if at < 0 || int(at) >= len(out) {
				continue
			}
			x := in[2].([]float32)[i]
			switch op {
			case "ScatterSum":
				out[at] += x
			case "ScatterMax":
				out[at] = max(out[at], x)
			default:
				out[at] = min(out[at], x)
			}
		}
		return []any{out}
	}
}

func fourier(in []any) []any {
	x := in[0].([]complex64)
	forward, inverse := make([]complex64, len(x)), make([]complex64, len(x))
	for row := range len(x) / 8 {
		for k := range 8 {
			var f, b complex128
			for j := range 8 {
				angle := 2 * math.Pi * float64(j*k) / 8
				f += complex128(x[row*8+j]) * cmplx.Exp(complex(0, -angle))
				b += complex128(x[row*8+j]) * cmplx.Exp(complex(0, angle)) / 8
			}
			forward[row*8+k], inverse[row*8+k] = complex64(f), complex64(b)
		}
	}
	return []any{forward, inverse}
}

// batchNorms are of [4,3], for inference, training and gradient.
func batchNorms(in []any) []any {
	const n, c, epsilon = 4, 3, 0.001
	f := func(i int) []float32 { return in[i].([]float32) }
	x, scale, offset, mean, variance, dy := f(0), f(1), f(2), f(3), f(4), f(5)
	y, z, dx := make([]float32, n*c), make([]float32, n*c), make([]float32, n*c)
	m, v, dScale, dOffset := make([]float32, c), make([]float32, c), make([]float32, c), make([]float32, c)
	for j := range c {
		inv := 1 / math.Sqrt(float64(variance[j])+epsilon)
		var sum, square, s, o float64
		for i := range n {
			sum += float64(x[i*c+j]) / n
			unit := float64(x[i*c+j]-mean[j]) * inv
			y[i*c+j] = float32(unit*float64(scale[j]) + float64(offset[j]))
			s += float64(dy[i*c+j]) * unit
			o += float64(dy[i*c+j])
		}
		for i := range n {
			square += (float64(x[i*c+j]) - sum) * (float64(x[i*c+j]) - sum) / n
		}
		for i := range n {
			z[i*c+j] = float32((float64(x[i*c+j])-sum)/math.Sqrt(square+epsilon)*float64(scale[j]) + float64(offset[j]))
			unit := float64(x[i*c+j]-mean[j]) * inv
			dx[i*c+j] = float32((float64(dy[i*c+j]) - o/n - unit*s/n) * float64(scale[j]) * inv)
		}
		m[j], v[j], dScale[j], dOffset[j] = float32(sum), float32(square), float32(s), float32(o)
	}
	return []any{y, z, m, v, dx, dScale, dOffset}
}

// grid is a tensor of float64.
type grid struct {
	dims []int
	at   []float64
}

func (g grid) index(at ...int) (i int) {
	at = at[len(at)-len(g.dims):]
	for d, n := range g.dims {
		i = i*n + at[d]%n // a dim of one row is for all
	}
	return i
}

// attentionReference goes over all positions, in float64. Masks are [sample, position, head, key] where positions come first.
func attentionReference(e example) func(in []any) []any {
	return func(in []any) []any {
		p, err := ir.Parse(e.text(e.body))
		if err != nil {
			panic(err)
		}
		at := slices.IndexFunc(p.Main.Ops, func(op *ir.Op) bool { return op.Type() == ir.OpFusedScaledDotProductAttention })
		op := p.Main.Ops[at]
		a := op.Attrs.(*ir.FusedScaledDotProductAttention)
		var g []grid
		for i, flat := range in {
			v := reflect.ValueOf(flat)
			x := grid{p.Main.Params[i].Shape.Dimensions, make([]float64, v.Len())}
			for j := range x.at {
				switch y := v.Index(j).Interface().(type) {
				case bool:
					if !y {
						x.at[j] = math.Inf(-1)
					}
				case int32:
					x.at[j] = float64(y)
				default:
					x.at[j], _ = float(y)
				}
			}
			g = append(g, x)
		}
		q, k, v, dOut := g[0], g[1], g[2], g[len(g)-1]
		var queryLen, keyLen, bias, mask *grid
		if a.Options != nil {
			for i, to := range []**grid{&queryLen, &keyLen, &bias, &mask} {
				if at := slices.Index(p.Main.Params, op.Inputs[3+i]); at >= 0 {
					*to = &g[at]
				}
			}
		}
		heads, position := a.AxesLayout.HeadsAxis(), a.AxesLayout.SeqAxis()
		place := func(b, h, s, f int) []int {
			if heads == 2 {
				return []int{b, s, h, f}
			}
			return []int{b, h, s, f}
		}
		group := q.dims[heads] / k.dims[heads]
		scale, causal := 1/math.Sqrt(float64(q.dims[3])), false
		if o := a.Options; o != nil {
			causal = o.Causal
			scale = cmp.Or(o.Scale, scale)
		}
		out, dq := make([]float64, len(q.at)), make([]float64, len(q.at))
		dk, dv := make([]float64, len(k.at)), make([]float64, len(v.at))
		for b := range q.dims[0] {
			for h := range q.dims[heads] {
				for s := range q.dims[position] {
					weights := make([]float64, k.dims[position])
					total := 0.0
					for t := range weights {
						score := 0.0
						for f := range q.dims[3] {
							score += q.at[q.index(place(b, h, s, f)...)] * k.at[k.index(place(b, h/group, t, f)...)] * scale
						}
						if bias != nil {
							score += bias.at[bias.index(b, h, s, t)]
						}
						if mask != nil {
							score += mask.at[mask.index(place(b, h, s, t)...)]
						}
						hidden := causal && t > s || keyLen != nil && t >= int(keyLen.at[b]) || queryLen != nil && s >= int(queryLen.at[b])
						if !hidden {
							weights[t] = math.Exp(score)
						}
						total += weights[t]
					}
					mean := 0.0
					for t := range weights {
						if total > 0 {
							weights[t] /= total
						}
						for f := range q.dims[3] {
							i, j := q.index(place(b, h, s, f)...), v.index(place(b, h/group, t, f)...)
							out[i] += weights[t] * v.at[j]
							mean += weights[t] * v.at[j] * dOut.at[i]
							dv[j] += weights[t] * dOut.at[i]
						}
					}
					for t := range weights {
						dp := 0.0
						for f := range q.dims[3] {
							dp += dOut.at[q.index(place(b, h, s, f)...)] * v.at[v.index(place(b, h/group, t, f)...)]
						}
						ds := weights[t] * (dp - mean) * scale
						for f := range q.dims[3] {
							i, j := q.index(place(b, h, s, f)...), k.index(place(b, h/group, t, f)...)
							dq[i] += ds * k.at[j]
							dk[j] += ds * q.at[i]
						}
					}
				}
			}
		}
		as := func(x []float64) any {
			flat := reflect.MakeSlice(reflect.TypeOf(in[0]), len(x), len(x))
			for i, y := range x {
				set(flat.Index(i), y, 0)
			}
			return flat.Interface()
		}
		return []any{as(out), as(dq), as(dk), as(dv), as(dq), as(dk), as(dv)}
	}
}
