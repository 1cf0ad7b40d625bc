// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// cudnn is an attention that cuDNN computes: XLA has custom calls for that, which JAX makes too. Scores are never in memory.
type cudnn struct {
	*Writer
	layout  compute.AttentionAxesLayout
	scale   float64
	causal  bool
	q, k, v Value
	// Absent ones are zero. There are both lengths or none.
	queryLen, keyLen, bias Value
}

// newCUDNN is nil if the definition is to be written.
func newCUDNN(w *Writer, in []Value, layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig) *cudnn {
	if !w.options.CUDNN || !ir.FusesAttention(layout, o, shapesOf(in)) {
		return nil
	}
	c := &cudnn{Writer: w, layout: layout, scale: scaleOf(in[0], o), q: in[0], k: in[1], v: in[2]}
	if o != nil {
		c.causal, c.bias = o.Causal, in[5]
		if in[3].ok() || in[4].ok() {
			c.queryLen, c.keyLen = c.length(in[3], c.q), c.length(in[4], c.k)
		}
	}
	return c
}

// length gives the lengths of samples; without any, the whole of x counts.
func (c *cudnn) length(n, x Value) Value {
	if !n.ok() {
		return c.fill(shapes.Make(dtypes.Int32, x.dims()[0]), float64(x.dims()[c.layout.SeqAxis()]))
	}
	return c.convert(n, dtypes.Int32)
}

// within is 0 where a position is not below the length. cuDNN leaves open what is there.
func (c *cudnn) within(x, length Value) Value {
	if !length.ok() {
		return x
	}
	at := c.iota(shapes.Make(dtypes.Int32, x.dims()...), c.layout.SeqAxis())
	return c.selects(c.compare("LT", at, c.broadcast(length, x.dims(), 0), false), x, c.fill(x.Shape, 0))
}

// queries is within for what has rows of queries: where there are no keys, there are no queries either.
func (c *cudnn) queries(x Value) Value {
	if !c.queryLen.ok() {
		return x
	}
	none := c.fill(c.keyLen.Shape, 0)
	return c.within(x, c.selects(c.compare("GT", c.keyLen, none, false), c.queryLen, none))
}

// lengths are those that cuDNN gets: it is not known to take 0, or too many.
func (c *cudnn) lengths() []Value {
	if !c.queryLen.ok() {
		return nil
	}
	bounded := func(n, x Value) Value {
		most := c.fill(n.Shape, float64(x.dims()[c.layout.SeqAxis()]))
		return c.one("clamp", n.Shape, []Value{c.fill(n.Shape, 1), n, most})
	}
	return []Value{bounded(c.queryLen, c.q), bounded(c.keyLen, c.k)}
}

func (c *cudnn) optional(x Value) []Value {
	if x.ok() {
		return []Value{x}
	}
	return nil
}

// forward gives the result, and the logarithm of the sum of exponentials if it is wanted.
func (c *cudnn) forward(state bool) []Value {
	d, h, s := c.q.dims(), c.layout.HeadsAxis(), c.layout.SeqAxis()
	out := []shapes.Shape{c.inside(c.q)}
	if state {
		out = append(out, shapes.Make(dtypes.Float32, d[0], d[h], d[s]))
	}
	results := c.call("", slices.Concat([]Value{c.q, c.k, c.v}, c.optional(c.bias), c.lengths()), out, map[string][2][]int{
		"bmm1": {{3, 0, h}, {3, 0, h}}, "bmm2": {{3, 0, 1}, {s, 0, h}},
	})
	results[0] = c.queries(c.outside(results[0]))
	return results
}

// backward gives the gradients of query, key and value.
func (c *cudnn) backward(result, state, gradient Value) []Value {
	h, s := c.layout.HeadsAxis(), c.layout.SeqAxis()
	in := slices.Concat([]Value{c.q, c.k, c.v, state, c.queries(gradient)}, c.optional(c.bias), []Value{result}, c.lengths())
	out := []shapes.Shape{c.inside(c.q), c.inside(c.k), c.inside(c.v)}
	if b := c.bias; b.ok() && b.dims()[0] == 1 && b.dims()[1] == c.q.dims()[h] {
		out = append(out, b.Shape) // its gradient, which is not wanted: JAX declares it where cuDNN can compute it, and XLA counts the results
	}
	results := c.call("Backward", in, out, map[string][2][]int{
		"bmm1_grad_gemm1": {{2, 0, 1}, {s, 0, h}}, "bmm1_grad_gemm2": {{3, 0, 1}, {s, 0, h}},
		"bmm2_grad_gemm1": {{2, 0, 1}, {s, 0, h}}, "bmm2_grad_gemm2": {{3, 0, h}, {3, 0, h}},
	})
	return []Value{c.queries(c.outside(results[0])), c.within(c.outside(results[1]), c.keyLen), c.within(c.outside(results[2]), c.keyLen)}
}

// inside is the shape of a result: heads come first. Where positions do in memory, outside moves nothing.
func (c *cudnn) inside(x Value) shapes.Shape {
	d := x.dims()
	return shapes.Make(x.Shape.DType, d[0], d[c.layout.HeadsAxis()], d[c.layout.SeqAxis()], d[3])
}

func (c *cudnn) outside(x Value) Value {
	if c.layout == compute.AttentionAxesLayoutBSHD {
		return c.transpose(x, 0, 2, 1, 3)
	}
	return x
}

// call writes the custom call. Its last result is memory that XLA gives it, as much as it needs. Products are named with an axis of both
// sides that is contracted and two that are not.
func (c *cudnn) call(which string, in []Value, out []shapes.Shape, products map[string][2][]int) []Value {
	name, mask := "Softmax", "NO_MASK"
	if c.bias.ok() {
		name = "ScaleBiasSoftmax"
	}
	switch lengths := c.queryLen.ok(); {
	case lengths && c.causal:
		mask = "PADDING_CAUSAL"
	case lengths:
		mask = "PADDING"
	case c.causal:
		mask = "CAUSAL"
	}
	d := c.inside(c.q).Dimensions
	config := map[string]any{
		"algorithm": map[string]any{"algo_id": "0", "math_type": "TENSOR_OP_MATH", "tuning_knobs": map[string]string{"17": "1", "24": "0"},
			"is_cudnn_frontend": true, "workspace_size": "0"},
		"fmha_scale": c.scale, "dropout_rate": 0, "seed": 42, "mask_type": mask, "is_flash_attention": true,
		"sliding_window_length": 0, "max_seg_per_batch": 1, "is_paged_attention": false,
		"intermediate_tensor_shape": map[string]any{
			"element_type": strings.ToUpper(types[c.q.Shape.DType]), "dimensions": digits(d[0], d[1], d[2], c.k.dims()[c.layout.SeqAxis()]),
			"tuple_shapes": []int{}, "is_dynamic_dimension": make([]bool, 4),
			"layout": map[string]any{"dim_level_types": []int{}, "dim_unique": []int{}, "dim_ordered": []int{}, "minor_to_major": digits(3, 2, 1, 0),
				"tiles": []int{}, "element_size_in_bits": "0", "memory_space": "0", "index_primitive_type": "PRIMITIVE_TYPE_INVALID",
				"pointer_primitive_type": "PRIMITIVE_TYPE_INVALID", "dynamic_shape_metadata_prefix_bytes": "0"},
		},
	}
	for product, axes := range products {
		config[product+"_dot_dimension_numbers"] = map[string][]string{
			"lhs_contracting_dimensions": digits(axes[0][0]), "lhs_batch_dimensions": digits(axes[0][1:]...),
			"rhs_contracting_dimensions": digits(axes[1][0]), "rhs_batch_dimensions": digits(axes[1][1:]...),
		}
	}
	text, err := json.Marshal(map[string]any{"cudnn_fmha_backend_config": config}) // plugins differ in what else they know
	if err != nil {
		refuse("%v", err) // a scale that is not finite
	}
	out = append(out, shapes.Make(dtypes.Uint8, 0))
	results := c.emit("stablehlo.custom_call", in, []string{
		"api_version = 2 : i32", fmt.Sprintf("backend_config = %q", text), fmt.Sprintf(`call_target_name = "__cudnn$fmha%s%s"`, name, which),
		boolean("has_side_effect", false), layouts("operand_layouts", shapesOf(in), false),
		layouts("result_layouts", out, c.layout == compute.AttentionAxesLayoutBSHD),
	}, nil, out...)
	return results[:len(out)-1]
}

// digits writes integers of 64 bits as JSON has them in protocol buffers.
func digits(xs ...int) []string {
	r := make([]string, len(xs))
	for i, x := range xs {
		r[i] = strconv.Itoa(x)
	}
	return r
}

// layouts are orders of axes in memory, the fastest first: from the last to the first, but with positions before heads if asked, except in the
// gradient of a bias, which is after those of query, key and value.
func layouts(name string, of []shapes.Shape, positionsFirst bool) string {
	texts := make([]string, len(of))
	for i, s := range of {
		order := upTo(s.Rank())
		slices.Reverse(order)
		if positionsFirst && s.Rank() == 4 && i < 3 {
			order = []int{3, 1, 2, 0}
		}
		texts[i] = fmt.Sprintf("dense<%s> : tensor<%dxindex>", list(order), s.Rank())
	}
	return name + " = [" + strings.Join(texts, ", ") + "]"
}
