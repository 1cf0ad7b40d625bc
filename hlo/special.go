// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"fmt"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/ir"
)

func init() {
	add(map[ir.OpType]rule{
		ir.OpRNGBitGenerator: func(w *Writer, op *ir.Op, in []Value) []Value {
			out := w.emit("stablehlo.rng_bit_generator", in, []string{enum("rng_algorithm", "rng_algorithm", "PHILOX")}, nil, outputs(op)...)
			// What draws next depends on the state. Fused into each other, many draws take XLA long to compile.
			return append(w.barrier(out[:1]), out[1:]...)
		},
		ir.OpFFT: fft,
		ir.OpBatchNormForInference: func(w *Writer, op *ir.Op, in []Value) []Value {
			a := op.Attrs.(*ir.BatchNormForInference)
			return w.batchNorm("inference", op, in, a.Epsilon, a.FeatureAxis)
		},
		ir.OpBatchNormForTraining: func(w *Writer, op *ir.Op, in []Value) []Value {
			a := op.Attrs.(*ir.BatchNormForTraining)
			return w.batchNorm("training", op, in, a.Epsilon, a.FeatureAxis)
		},
		ir.OpBatchNormGradient: func(w *Writer, op *ir.Op, in []Value) []Value {
			a := op.Attrs.(*ir.BatchNormGradient)
			return w.batchNorm("grad", op, in, a.Epsilon, a.FeatureAxis)
		},
	})
}

func (w *Writer) batchNorm(kind string, op *ir.Op, in []Value, epsilon float32, axis int) []Value {
	return w.emit("stablehlo.batch_norm_"+kind, in, []string{
		fmt.Sprintf("epsilon = %s : f32", decimal(float64(epsilon), 32)), integer("feature_index", positive(axis, in[0].rank())),
	}, nil, outputs(op)...)
}

var fftTypes = map[compute.FFTType]string{
	compute.FFTForward: "FFT", compute.FFTInverse: "IFFT", compute.FFTForwardReal: "RFFT", compute.FFTInverseReal: "IRFFT",
}

func fft(w *Writer, op *ir.Op, in []Value) []Value {
	a := op.Attrs.(*ir.FFT)
	return []Value{w.one("fft", op.Outputs[0].Shape, in, array("fft_length", a.FFTLength), enum("fft_type", "fft_type", fftTypes[a.FFTType]))}
}
