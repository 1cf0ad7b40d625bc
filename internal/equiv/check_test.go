// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"strings"
	"testing"

	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
)

// checked makes recompute compare gradients with plain ones.
func checked(params map[string]any) map[string]any {
	all := map[string]any{"gradient_checkpoint.type": "auto", "gradient_checkpoint.check_gradients": true}
	for k, v := range params {
		all[k] = v
	}
	return all
}

func TestRecomputedGradientsAreThoseOfPlainBackward(t *testing.T) {
	for _, m := range Models() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			train := func(params map[string]any) *Run {
				env := newCluster(t, 2, 2, params)
				r, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 3)
				if err != nil {
					t.Fatalf("%+v", err)
				}
				return r
			}
			if err := SameBits(train(map[string]any{"gradient_checkpoint.type": "auto"}), train(checked(nil))); err != nil {
				t.Error(err)
			}
		})
	}
	for _, m := range StagedModels() {
		if m.Name != "mlp" && m.Name != "tied" && m.Name != "dropout" {
			continue
		}
		t.Run("pipeline/"+m.Name, func(t *testing.T) {
			p := pipelinePlan{stages: 2, replicas: 2, micro: 3}
			m.piped(t, p.env(t, checked(nil)), p.stages, sgd(), 3)
		})
	}
}

// recomputesWrongly lets recompute compute something else, until the returned function is called.
func recomputesWrongly() (end func()) {
	for i, pass := range passes.Table {
		if pass.Name != "recompute" {
			continue
		}
		passes.Table[i].Run = func(p *ir.Program, o passes.Options) (int, error) {
			n, err := pass.Run(p, o)
			for _, op := range p.Main.Ops { // one of what is computed again
				if _, ok := op.Attrs.(*ir.Erf); ok && op.Phase == ir.Backward && op.Origin == ir.Rematerialised {
					op.Attrs = &ir.Exp{}
					break
				}
			}
			return n, err
		}
		return func() { passes.Table[i] = pass }
	}
	return nil
}

func TestGradientsThatAreRecomputedWronglyAreNamed(t *testing.T) {
	defer recomputesWrongly()()
	m := Model{"mlp", MLP(6, 16, false), Models()[0].Loss, Regression(8, 8)}
	env := newCluster(t, 1, 2, checked(nil))
	var err error
	if late := exceptions.TryCatch[error](func() { // on GPUs
		_, err = TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 1)
	}); late != nil {
		err = late
	}
	if err == nil || !strings.Contains(err.Error(), `the gradient of "/`) || !strings.Contains(err.Error(), "gradient_checkpoint.check_gradients") {
		t.Errorf("%v", err)
	}
}

// Devices of a split compare what each of them has.
func TestRecomputedGradientsOfASplitAreThoseOfPlainBackward(t *testing.T) {
	for _, name := range []string{"mlp", "tied", "embeddings"} {
		m, p := partedModel(name), splitPlan{parts: []int{2}, replicas: 1, micro: 2}
		env := p.env(t, map[string]any{"gradient_checkpoint.type": "auto", "gradient_checkpoint.check_gradients": true})
		m.under(p).piped(t, env, 0, sgd(), 2)
	}
}
