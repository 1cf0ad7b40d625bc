package xla

import (
	"strconv"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/hlo"
	"github.com/easyparallel/epl/pjrt"
)

// Attention in half precision is recorded as one op where cuDNN computes it. The pure-Go backend, which tells the shapes of all other ops,
// has it disabled: GoMLX would write it out, and no pass could find it again.

// hasCUDNN tells whether a GPU has fused attention: from NVIDIA's Ampere on.
func hasCUDNN(platform string, gpu *pjrt.Device) bool {
	text, _ := gpu.Attributes["compute_capability"].(string)
	capability, err := strconv.ParseFloat(text, 64)
	return platform == "cuda" && err == nil && capability >= 8
}

// Capabilities implements compute.Backend.
func (d *Device) Capabilities() compute.Capabilities {
	c := d.Backend.Capabilities().Clone()
	if d.cudnn {
		c.Operations[compute.OpTypeFusedScaledDotProductAttention] = true
		c.Operations[compute.OpTypeFusedScaledDotProductAttentionVJP] = true
	}
	return c
}

// Builder implements compute.Backend.
func (d *Device) Builder(name string) compute.Builder {
	b := d.Backend.Builder(name)
	if d.cudnn {
		return builder{b}
	}
	return b
}

// builder is for shapes only, and so is its function.
type builder struct{ compute.Builder }

func (b builder) Main() compute.Function { return function{b.Builder.Main()} }

type function struct{ compute.Function }

// fused is an error if cuDNN lacks an attention.
func (f function) fused(layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig, operands ...compute.Value) error {
	if o != nil {
		operands = append(operands, o.QuerySeqLen, o.KeyValueSeqLen, o.Bias, o.Mask)
	}
	of := make([]shapes.Shape, len(operands))
	for i, v := range operands {
		if v == nil {
			continue
		}
		var err error
		if of[i], err = f.Shape(v); err != nil {
			return err
		}
	}
	if !hlo.FusesAttention(layout, o, of) {
		return errors.Wrapf(compute.ErrNotImplemented, "epl: cuDNN has no attention of %s and %s, %s", of[0], of[1], layout)
	}
	return nil
}

// FusedScaledDotProductAttention implements compute.Function. The state is the logarithm of the sum of exponentials.
func (f function) FusedScaledDotProductAttention(q, k, v compute.Value, layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig) (compute.Value, []compute.Value, error) {
	if err := f.fused(layout, o, q, k, v); err != nil {
		return nil, nil, err
	}
	s, err := f.Shape(q)
	if err != nil {
		return nil, nil, err
	}
	state, err := f.Iota(shapes.Make(dtypes.Float32, s.Dimensions[0], s.Dimensions[layout.HeadsAxis()], s.Dimensions[layout.SeqAxis()]), 0)
	return q, []compute.Value{state}, err
}

// FusedScaledDotProductAttentionVJP implements compute.Function.
func (f function) FusedScaledDotProductAttentionVJP(q, k, v compute.Value, layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig, _ compute.Value, _ []compute.Value, _ compute.Value) (compute.Value, compute.Value, compute.Value, error) {
	return q, k, v, f.fused(layout, o, q, k, v)
}
