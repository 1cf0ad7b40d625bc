// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import "strings"

// Names of functions that a runner may have kernels for. What a function computes is its body, as always: a kernel is another way to compute it.
const (
	// NormGradient is the gradient of a layer norm y = (x − μ)/σ·gain + offset, over the last axis. Its parameters are the gradient of y and x,
	// in bfloat16; μ and 1/σ in float32, with one number for each row; gain in float32; and, if there is a sixth, another gradient of x in bfloat16.
	// Its results are the gradient of x, with the other one added, in bfloat16; those of gain and offset; and, if there is a fourth, the
	// first summed over rows, in float32.
	NormGradient = "epl.norm_gradient"
	// Norm and a number ε, as text, is a layer norm y = (x − μ)/σ·gain + offset, over the last axis, with ε added to the variance. Its parameters are x in bfloat16,
	// and gain and offset in float32. Its results are y in bfloat16, and μ and σ in float32, with one number for each row.
	Norm = "epl.norm:"
	// GELUGradient is the gradient of GELU as the pass gelu writes it, of x + bias. Its parameters are the gradient of the result and x, in
	// bfloat16, and the bias, in float32. Its results are the gradient of x, in bfloat16, and that of the bias.
	GELUGradient = "epl.gelu_gradient"
)

// IsKernel tells whether a function is one of these.
func (f *Func) IsKernel() bool {
	return f.Name == NormGradient || f.Name == GELUGradient || strings.HasPrefix(f.Name, Norm)
}
