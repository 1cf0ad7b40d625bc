// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
)

// Engine is what of the devices decides: which passes rewrite a program, and how. The program itself is recorded the same for all.
type Engine struct {
	// AsWritten: it rounds where programs say so. XLA does not.
	AsWritten bool `json:"as_written"`
	// Attention: it has attention in half precision as one op, as cuDNN has.
	Attention bool `json:"attention,omitempty"`
}

// Other is what a plan says for another engine than the one that it was decided for. All else is the same.
type Other struct {
	Engine  Engine         `json:"engine"`
	Choices passes.Choices `json:"choices"`
	Result  string         `json:"result"`
}

// engines are all that EPL knows: CPUs, GPUs with cuDNN, and other GPUs.
var engines = []Engine{{AsWritten: true}, {Attention: true}, {}}

func engineOf(t Target) Engine { return Engine{AsWritten: t.AsWritten, Attention: t.Attention != nil} }

// String describes an engine.
func (e Engine) String() string {
	switch {
	case e.AsWritten:
		return "one that rounds where a program says so, as CPUs do"
	case e.Attention:
		return "XLA with attention as one op, as on GPUs with cuDNN"
	}
	return "XLA without attention as one op"
}

// depends tells whether what becomes of a program depends on the engine: in half precision only.
func depends(p *ir.Program, cfg *config.Config) bool {
	if HalfType(cfg.AMP) != dtypes.InvalidDType {
		return true
	}
	for _, op := range p.Main.Ops {
		if _, is := op.Attrs.(*ir.FusedScaledDotProductAttention); is {
			return true
		}
	}
	return false
}

// ForAll adds what other engines need to a plan that was decided for the target, so that it is valid on all of them.
func (pl *Plan) ForAll(p *ir.Program, cfg *config.Config, t Target) error {
	if !depends(p, cfg) {
		return nil
	}
	for _, e := range engines {
		if e == pl.Engine {
			continue
		}
		t := t
		t.AsWritten, t.Attention, t.Fused, t.Planner, t.Look, t.Cut = e.AsWritten, nil, nil, nil, nil, pl.Cut
		if e.Attention {
			t.Attention = func(*ir.Op) bool { return true }
		}
		other, _, err := Decide(p, cfg, t)
		if err != nil {
			return errors.WithMessagef(err, "the plan for %s", e)
		}
		pl.Others = append(pl.Others, Other{e, other.Choices, other.Result})
	}
	return nil
}

// on is the plan as it is for an engine.
func (pl *Plan) on(e Engine, p *ir.Program) (*Plan, error) {
	cfg, err := config.Of(pl.settings())
	if err != nil || e == pl.Engine || !depends(p, cfg) {
		return pl, errors.WithMessage(err, "epl: settings of the plan")
	}
	for _, o := range pl.Others {
		if o.Engine == e {
			x := *pl
			x.Engine, x.Choices, x.Result = e, o.Choices, o.Result
			return &x, nil
		}
	}
	return pl, errors.Errorf("epl: the plan is for another engine: %s, and this is %s; make the plan again by epl plan --json, which makes it for all", pl.Engine, e)
}
