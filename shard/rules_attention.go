package shard

import (
	"slices"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/ir"
)

func init() {
	rules[ir.OpFusedScaledDotProductAttention] = func(op *ir.Op) *Rule {
		a := op.Attrs.(*ir.FusedScaledDotProductAttention)
		out := slices.Repeat([]role{ofState}, len(op.Outputs))
		out[0] = ofQueries
		return attention(op, a.AxesLayout, a.Options, nil, out)
	}
	rules[ir.OpFusedScaledDotProductAttentionVJP] = func(op *ir.Op) *Rule {
		a := op.Attrs.(*ir.FusedScaledDotProductAttentionVJP)
		options := 0
		if a.Options != nil {
			options = 4
		}
		more := slices.Repeat([]role{ofState}, len(op.Inputs)-3-options) // of forward: the result, what it kept, the gradient
		more[0], more[len(more)-1] = ofQueries, ofQueries
		return attention(op, a.AxesLayout, a.Options, more, []role{ofQueries, ofKeyGradients, ofKeyGradients})
	}
}

// role is what an operand of attention has rows for.
type role uint8

const (
	ofQueries role = iota
	ofKeys
	ofKeyGradients
	ofSamples // one number for each sample
	ofScores  // it is added to the scores, or masks them
	ofState   // what forward keeps for backward: as scores, as far as anybody knows
)

// attention: samples, heads together with those that share keys and values, and queries if it does not matter which one it is.
func attention(op *ir.Op, layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig, more, out []role) *Rule {
	in := []role{ofQueries, ofKeys, ofKeys}
	if o != nil {
		in = append(in, ofSamples, ofSamples, ofScores, ofScores)
	}
	in = append(in, more...)
	at := []int{0, layout.HeadsAxis(), layout.SeqAxis()} // dims of queries: samples, heads, positions
	r := &Rule{}
	for dim, d := range at {
		f := Factor{Size: dims(op.Inputs[min(dim, 1)])[d]} // heads are counted in groups, one for each head of keys
		ok := f.Size > 1
		if dim == 2 {
			f.Size = dims(op.Inputs[0])[d]
			ok = f.Size > 1 && (o == nil || !o.Causal && !o.QuantizedMatmuls && op.Inputs[3] == nil)
		}
		ref := func(v *ir.Value, is role) Ref {
			if v == nil {
				return Ref{whole, 1}
			}
			to := whole
			switch is {
			case ofQueries:
				to = d
			case ofKeys, ofKeyGradients:
				switch {
				case dim < 2:
					to = d
				case is == ofKeyGradients:
					to = term
				}
			case ofSamples:
				if dim == 0 {
					to = 0
				}
			case ofScores:
				to = dim + v.Shape.Rank() - 4
				ok = ok && (v.Shape.Rank() != 3 || dim == 2) // its first dim may be that of samples or that of heads
				if to < 0 || dims(v)[to] == 1 {
					to = whole
				}
			case ofState:
				if to = dim; v.Shape.Rank() <= dim || dims(v)[dim] != dims(op.Inputs[0])[d] {
					ok, to = false, whole
				}
			}
			if to < 0 {
				return Ref{to, 1}
			}
			return Ref{to, dims(v)[to] / f.Size}
		}
		for i, v := range op.Inputs {
			f.In = append(f.In, ref(v, in[i]))
		}
		for i, v := range op.Outputs {
			f.Out = append(f.Out, ref(v, out[i]))
		}
		if ok {
			r.Factors = append(r.Factors, f)
		}
	}
	return r
}
