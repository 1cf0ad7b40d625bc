package equiv

import (
	"fmt"
	"testing"

	"github.com/easyparallel/epl"
)

// newPipeline makes EPL on several devices, a TaskGraph on each.
func newPipeline(t testing.TB, devices, micro int, params map[string]any, opts ...epl.Option) *epl.Env {
	t.Helper()
	all := map[string]any{"cluster.colocate_split_and_replicate": false}
	for k, v := range params {
		all[k] = v
	}
	return newCluster(t, devices, micro, all, opts...)
}

func TestAPipelineGivesTheWeightsOfOneDevice(t *testing.T) {
	for stages := 2; stages <= 4; stages++ {
		for replicas := 1; replicas <= 2; replicas++ {
			for micro := 1; micro <= 6; micro++ {
				for _, strategy := range []string{"PreferForward", "PreferBackward", "PreferBackwardOptimizer", "ZeroBubble"} {
					t.Run(fmt.Sprintf("%dx%d/%d/%s", stages, replicas, micro, strategy), func(t *testing.T) {
						m := Model{"mlp", MLP(stages, 16, false), Models()[0].Loss, Regression(8, 8)}
						single := m
						single.Batch = joined(m.Batch, replicas*micro)
						want := train1(t, single, sgd(), 3, nil)
						env := newPipeline(t, stages*replicas, micro, map[string]any{"pipeline.strategy": strategy})
						got := trainParallel(t, env, m, sgd(), 3)
						if err := CloseWeights(want, got, 1e-5); err != nil {
							t.Error(err)
						}
						if err := CloseLosses(want, got, 1e-5); err != nil {
							t.Error(err)
						}
					})
				}
			}
		}
	}
}
