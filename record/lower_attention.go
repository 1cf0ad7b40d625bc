package record

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
)

// Attention that the inner backend fuses in half precision only, as XLA on CUDA does, is recorded so under mixed precision, with
// casts around it: otherwise GoMLX writes it out, and no pass could find it again.

// attention records a fused attention whose operands are float32.
func (f *Func) attention(a ir.Attrs, in []compute.Value) ([]compute.Value, error) {
	in, err := f.boundBias(in)
	if err != nil {
		return nil, err
	}
	outs, err := f.inHalf(a, in, 0, 1, 2, attentionBias)
	if err != nil {
		return nil, err
	}
	outs[0], err = f.ConvertDType(outs[0], dtypes.Float32) // the others are float32 in any case
	return outs, err
}

// attentionGradient records the gradient of a fused attention whose operands are float32. The operands after those of the
// attention are its result, its states, which stay as they are, and the gradient of its result.
func (f *Func) attentionGradient(a *ir.FusedScaledDotProductAttentionVJP, in []compute.Value) ([]compute.Value, error) {
	which := []int{0, 1, 2, 3, len(in) - 1}
	if a.Options != nil {
		which[3] = attentionBias + 2
		which = append(which, attentionBias)
		var err error
		if in, err = f.boundBias(in); err != nil {
			return nil, err
		}
	}
	outs, err := f.inHalf(a, in, which...)
	if err != nil {
		return nil, err
	}
	for i := range outs {
		if outs[i], err = f.ConvertDType(outs[i], dtypes.Float32); err != nil {
			return nil, err
		}
	}
	return outs, nil
}

// attentionBias is where the bias stands among the operands of an attention with options: after query, key, value and two
// lengths, and before the mask.
const attentionBias = 5

// boundBias keeps a bias within float16, where a mask of -1e9 would be infinite, and a row that is masked wholly not a number.
func (f *Func) boundBias(in []compute.Value) ([]compute.Value, error) {
	if f.b.backend.opts.HalfType != dtypes.Float16 || len(in) <= attentionBias || in[attentionBias] == nil {
		return in, nil
	}
	v, err := f.b.own(in[attentionBias])
	if err != nil || v.Shape.DType != dtypes.Float32 {
		return in, err
	}
	least, err := f.Constant([]float32{-65504})
	if err != nil {
		return nil, err
	}
	bounded := clone(in)
	bounded[attentionBias], err = f.Max(in[attentionBias], least)
	return bounded, err
}

// inHalf records an op with some of its operands cast to the type of mixed precision.
func (f *Func) inHalf(a ir.Attrs, in []compute.Value, which ...int) ([]compute.Value, error) {
	cast := clone(in)
	for _, i := range which {
		if i >= len(in) || in[i] == nil {
			continue
		}
		v, err := f.b.own(in[i])
		if err != nil {
			return nil, err
		}
		if v.Shape.DType != dtypes.Float32 {
			continue
		}
		if cast[i], err = f.ConvertDType(in[i], f.b.backend.opts.HalfType); err != nil {
			return nil, err
		}
	}
	return f.record(a, opInputs{vals: cast})
}

// inFloat32 tells whether mixed precision is on and an op has a first operand that it could take in half precision.
func (f *Func) inFloat32(in opInputs) bool {
	if f.b.backend.opts.HalfType == dtypes.InvalidDType {
		return false
	}
	v, err := f.b.own(in.vals[0])
	return err == nil && v.Shape.DType == dtypes.Float32
}
