// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
)

// constant reads a dense literal.
func constant(s statement, out value) value {
	text := s.attr(`value = dense<([^>]*)>`)
	one := func(word string) float64 {
		switch {
		case word == "true":
			return 1
		case word == "false":
			return 0
		case strings.HasPrefix(word, "0x"):
			raw, err := hex.DecodeString(word[2:])
			if err != nil {
				panic(err)
			}
			slices.Reverse(raw)
			return fromBytes(out.typ, raw)
		}
		x, err := strconv.ParseFloat(word, 64)
		if err != nil {
			panic(err)
		}
		return x
	}
	if digits, ok := strings.CutPrefix(text, `"0x`); ok {
		raw, err := hex.DecodeString(strings.TrimSuffix(digits, `"`))
		if err != nil || len(raw) != len(out.at)*width(out.typ)/8 {
			panic("the bytes of a constant are wrong")
		}
		for i := range out.at {
			out.at[i] = fromBytes(out.typ, raw[i*width(out.typ)/8:])
		}
		return out
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("[], ", r) })
	for i := range out.at {
		out.at[i] = rounded(out.typ, one(words[i%len(words)]))
	}
	return out
}

func fromBytes(typ string, raw []byte) float64 {
	raw = append(slices.Clone(raw[:width(typ)/8]), make([]byte, 8)...)
	b := binary.LittleEndian.Uint64(raw)
	switch typ {
	case "f64":
		return math.Float64frombits(b)
	case "f32":
		return float64(math.Float32frombits(uint32(b)))
	case "bf16":
		return float64(bfloat16.BFloat16(b).Float32())
	case "f16":
		return float64(float16.Float16(b).Float32())
	}
	return rounded(typ, float64(b))
}

func dynamic(n string, in []value, out value) value {
	x, size, first := in[0], out.dims, 1
	if n == "dynamic_update_slice" {
		size, first = in[1].dims, 2
	}
	start := make([]int, len(x.dims))
	for d := range start {
		start[d] = min(max(int(in[first+d].at[0]), 0), x.dims[d]-size[d])
	}
	shifted := func(at []int, sign int) []int {
		r := make([]int, len(at))
		for d := range at {
			r[d] = at[d] + sign*start[d]
		}
		return r
	}
	if n == "dynamic_slice" {
		return out.fill(func(at []int) float64 { return x.get(shifted(at, 1)) })
	}
	return out.fill(func(at []int) float64 {
		from := shifted(at, -1)
		for d := range from {
			if from[d] < 0 || from[d] >= size[d] {
				return x.get(at)
			}
		}
		return in[1].get(from)
	})
}

// reduce has the state first, then the elements, of all operands.
func (m *interpreter) reduce(s statement, in, outs []value) []value {
	n := len(in) / 2
	ds := s.array("dimensions")
	for k := range outs {
		for i := range outs[k].at {
			outs[k].at[i] = in[n+k].at[0]
		}
	}
	positions(in[0].dims, func(at []int) {
		var to []int
		for d := range at {
			if !slices.Contains(ds, d) {
				to = append(to, at[d])
			}
		}
		args := make([]value, 2*n)
		for k := range n {
			args[k], args[n+k] = scalar(outs[k].typ, outs[k].get(to)), scalar(in[k].typ, in[k].get(at))
		}
		for k, v := range m.call(s.regions[0], args...) {
			outs[k].at[outs[k].offset(to)] = v.at[0]
		}
	})
	return outs
}

func (m *interpreter) sort(s statement, in, outs []value) []value {
	axis := s.number("dimension")
	rest := slices.Clone(in[0].dims)
	n := rest[axis]
	rest[axis] = 1
	positions(rest, func(at []int) {
		index := func(i int) int {
			p := slices.Clone(at)
			p[axis] = i
			return in[0].offset(p)
		}
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		before := func(i, j int) bool {
			var args []value
			for _, x := range in {
				args = append(args, scalar(x.typ, x.at[index(i)]), scalar(x.typ, x.at[index(j)]))
			}
			return m.call(s.regions[0], args...)[0].at[0] != 0
		}
		slices.SortStableFunc(order, func(i, j int) int {
			switch {
			case before(i, j):
				return -1
			case before(j, i):
				return 1
			}
			return 0
		})
		for k, x := range in {
			for i, j := range order {
				outs[k].at[index(i)] = x.at[index(j)]
			}
		}
	})
	return outs
}

func dotted(s statement, in []value, out value) value {
	xb, yb, xc, yc := s.list("lhs_batching_dimensions"), s.list("rhs_batching_dimensions"), s.list("lhs_contracting_dimensions"), s.list("rhs_contracting_dimensions")
	contracted := make([]int, len(xc))
	for i, d := range xc {
		contracted[i] = in[0].dims[d]
	}
	return out.fill(func(at []int) float64 {
		x, y := make([]int, len(in[0].dims)), make([]int, len(in[1].dims))
		for i := range xb {
			x[xb[i]], y[yb[i]] = at[i], at[i]
		}
		k := len(xb)
		for d := range x {
			if !slices.Contains(xb, d) && !slices.Contains(xc, d) {
				x[d] = at[k]
				k++
			}
		}
		for d := range y {
			if !slices.Contains(yb, d) && !slices.Contains(yc, d) {
				y[d] = at[k]
				k++
			}
		}
		sum := 0.0
		positions(contracted, func(c []int) {
			for i := range c {
				x[xc[i]], y[yc[i]] = c[i], c[i]
			}
			sum += in[0].get(x) * in[1].get(y)
		})
		return sum
	})
}

func convolved(s statement, in []value, out value) value {
	axes := func(text string) map[string]int {
		r := map[string]int{}
		for i, w := range strings.Split(text, ", ") {
			r[w] = i
		}
		return r
	}
	x, k, o := axes(s.attr(`conv<\[([^\]]*)\]x`)), axes(s.attr(`\]x\[([^\]]*)\]`)), axes(s.attr(`->\[([^\]]*)\]`))
	groups, batches := s.number("feature_group_count"), s.number("batch_group_count")
	strides, padding, inDilation, kernelDilation := s.array("window_strides"), s.padding(), s.array("lhs_dilation"), s.array("rhs_dilation")
	n := len(strides)
	window := make([]int, n+1)
	for i := range n {
		window[i] = in[1].dims[k[fmt.Sprint(i)]]
	}
	window[n] = in[1].dims[k["i"]]
	features := out.dims[o["f"]]
	return out.fill(func(at []int) float64 {
		sum := 0.0
		f := at[o["f"]]
		positions(window, func(w []int) {
			from, kernel := make([]int, n+2), make([]int, n+2)
			for i := range n {
				d := fmt.Sprint(i)
				p := at[o[d]]*strides[i] + w[i]*kernelDilation[i] - padding[2*i]
				if p < 0 || p%inDilation[i] != 0 || p/inDilation[i] >= in[0].dims[x[d]] {
					return
				}
				from[x[d]], kernel[k[d]] = p/inDilation[i], w[i]
			}
			kernel[k["i"]], kernel[k["o"]] = w[n], f
			from[x["f"]] = f/(features/groups)*window[n] + w[n]
			from[x["b"]] = f/(features/batches)*(in[0].dims[x["b"]]/batches) + at[o["b"]]
			sum += in[0].get(from) * in[1].get(kernel)
		})
		return sum
	})
}

// startAt reads an index vector; the dims of the indices without that of vectors are given.
func startAt(indices value, vector int, batch, to []int, rank int) []int {
	start := make([]int, rank)
	for i, d := range to {
		at := slices.Clone(batch)
		if vector < len(indices.dims) {
			at = slices.Insert(at, vector, i)
		}
		start[d] = int(indices.get(at))
	}
	return start
}

func gathered(s statement, in []value, out value) value {
	offsets, collapsed, to := s.list("offset_dims"), s.list("collapsed_slice_dims"), s.list("start_index_map")
	vector, size := s.number("index_vector_dim"), s.array("slice_sizes")
	return out.fill(func(at []int) float64 {
		var batch []int
		for d := range at {
			if !slices.Contains(offsets, d) {
				batch = append(batch, at[d])
			}
		}
		from := startAt(in[1], vector, batch, to, len(in[0].dims))
		k := 0
		for d := range from {
			from[d] = min(max(from[d], 0), in[0].dims[d]-size[d])
			if !slices.Contains(collapsed, d) {
				from[d] += at[offsets[k]]
				k++
			}
		}
		return in[0].get(from)
	})
}

func (m *interpreter) scattered(s statement, in []value, out value) value {
	windows, inserted, to := s.list("update_window_dims"), s.list("inserted_window_dims"), s.list("scatter_dims_to_operand_dims")
	vector := s.number("index_vector_dim")
	copy(out.at, in[0].at)
	positions(in[2].dims, func(at []int) {
		var batch []int
		for d := range at {
			if !slices.Contains(windows, d) {
				batch = append(batch, at[d])
			}
		}
		p := startAt(in[1], vector, batch, to, len(out.dims))
		k := 0
		for d := range p {
			if !slices.Contains(inserted, d) {
				p[d] += at[windows[k]]
				k++
			}
			if p[d] < 0 || p[d] >= out.dims[d] {
				return
			}
		}
		i := out.offset(p)
		out.at[i] = m.call(s.regions[0], scalar(out.typ, out.at[i]), scalar(out.typ, in[2].get(at)))[0].at[0]
	})
	return out
}

// inWindow calls do with the position of every element of a window, those that are not there left out.
func (s statement) inWindow(x value, at, inDilation, windowDilation []int, do func(from []int)) {
	size, stride, padding := s.array("window_dimensions"), s.array("window_strides"), s.padding()
	positions(size, func(w []int) {
		from := make([]int, len(at))
		for d := range at {
			p := at[d]*stride[d] + w[d]*windowDilation[d] - padding[2*d]
			if p < 0 || p%inDilation[d] != 0 || p/inDilation[d] >= x.dims[d] {
				return
			}
			from[d] = p / inDilation[d]
		}
		do(from)
	})
}

func (m *interpreter) windows(s statement, in []value, out value) value {
	return out.fill(func(at []int) float64 {
		r := in[1]
		s.inWindow(in[0], at, s.array("base_dilations"), s.array("window_dilations"), func(from []int) {
			r = m.call(s.regions[0], r, scalar(in[0].typ, in[0].get(from)))[0]
		})
		return r.at[0]
	})
}

func (m *interpreter) selected(s statement, in []value, out value) value {
	ones := slices.Repeat([]int{1}, len(out.dims))
	for i := range out.at {
		out.at[i] = in[2].at[0]
	}
	positions(in[1].dims, func(at []int) {
		var best []int
		s.inWindow(in[0], at, ones, ones, func(from []int) {
			if best == nil || m.call(s.regions[0], scalar(in[0].typ, in[0].get(best)), scalar(in[0].typ, in[0].get(from)))[0].at[0] == 0 {
				best = from
			}
		})
		i := out.offset(best)
		out.at[i] = m.call(s.regions[1], scalar(out.typ, out.at[i]), scalar(out.typ, in[1].get(at)))[0].at[0]
	})
	return out
}
