// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes_test

import (
	"testing"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
)

// The mean over micro-batches is made where gradients are applied, if no other model replica has to agree.
func TestApplyMakesTheMeanOfOneReplicasGradients(t *testing.T) {
	for _, x := range []struct {
		local ir.Local
		how   ir.How
	}{
		{ir.Local{Replicas: 1, MicroBatches: 3}, ir.Sum},
		{ir.Local{Replicas: 2, MicroBatches: 3}, ir.Mean},
		{ir.Local{Replicas: 2, MicroBatches: 1}, ir.Mean},
	} {
		before, _ := golden(t, "testdata/local-view.txt")
		p := parse(t, before)
		if _, err := passes.Run(p, passes.Set{"local-view": true}, passes.Options{Local: &x.local}, nil); err != nil {
			t.Fatal(err)
		}
		if len(p.Gradients) == 0 {
			t.Fatal("there are no gradients")
		}
		for _, g := range p.Gradients {
			m, ok := g.Value.Op.Attrs.(*ir.Merge)
			if !ok || m.How != x.how {
				t.Errorf("%+v: the gradient of %q is %s", x.local, g.Variable.Path, g.Value.Op)
			}
			for _, op := range p.Main.Ops {
				for _, in := range op.Inputs {
					if _, multiplies := op.Attrs.(*ir.Mul); in == g.Value && op.Phase == ir.Apply && !multiplies && x.how == ir.Sum {
						t.Errorf("%+v: %s reads the sum", x.local, op)
					}
				}
			}
		}
	}
}
