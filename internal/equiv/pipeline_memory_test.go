package equiv

import (
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
)

// bulky are equal stages that keep one large value for backward; all else is small.
func bulky(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		for i := range stages {
			stage(x, i, func() {
				h := hidden(scope, x, i, 256)
				x = layers.Dense(scope.In("narrow_%d", i), h, true, 8)
				if i == stages-1 {
					x = ReduceAndKeep(x, ReduceMean, -1)
				}
			})
		}
		return []*Node{x}
	}
}

func peaks(t *testing.T, p pipelinePlan) []int64 {
	t.Helper()
	m := Staged{"bulky", bulky, Models()[0].Loss, Regression(256, 8)}
	env := p.env(t, nil)
	m.piped(t, env, p.stages, sgd(), 2)
	var out []int64
	for _, d := range env.Stats().Devices {
		out = append(out, d.PeakBytes)
	}
	return out
}

func TestTmpPeaks(t *testing.T) {
	for _, s := range strategies {
		for m := 1; m <= 8; m++ {
			p := pipelinePlan{stages: 4, replicas: 1, micro: m, strategy: s}
			if s == "Interleaved" {
				p.perDevice = 2
			}
			var kb []int64
			for _, x := range peaks(t, p) {
				kb = append(kb, x>>10)
			}
			t.Log(s, m, kb)
		}
	}
}
