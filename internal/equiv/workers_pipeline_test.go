package equiv

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
)

// Stages on different workers: every worker ends with the weights of one device, though it trained only some of them.
func TestAPipelineOverSeveralWorkersGivesTheWeightsOfOneDevice(t *testing.T) {
	for _, w := range []workers{
		{num: 2, devices: 1},
		{num: 2, devices: 1, hosts: "a,b"},
		{num: 2, devices: 2, hosts: "a,b"},
		{num: 4, devices: 1, hosts: "a,a,b,b"},
	} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "pipeline") })
	}
}

func init() {
	parts["pipeline"] = func(w *part) error {
		for _, c := range []struct {
			micro  int
			params map[string]any
		}{
			{1, nil},
			{3, nil},
			{2, map[string]any{"pipeline.strategy": "PreferForward"}},
			{4, map[string]any{"pipeline.strategy": "ZeroBubble"}},
			{2, map[string]any{"cluster.device_place_prefer_intra_node": false}},
		} {
			m := Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)}
			if err := w.pipeline(m, 2, c.micro, c.params); err != nil {
				return errors.Wrapf(err, "%d micro-batches, %v", c.micro, c.params)
			}
		}
		return nil
	}
}

// pipeline trains over all workers in stages, and on one device of this worker alone.
func (w *part) pipeline(m Model, stages, micro int, params map[string]any) error {
	all := map[string]any{"pipeline.num_micro_batch": micro, "cluster.colocate_split_and_replicate": false}
	for k, v := range params {
		all[k] = v
	}
	env, err := w.init(all)
	if err != nil {
		return err
	}
	defer env.Close()
	const steps = 3
	got, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), steps)
	if err != nil {
		return err
	}
	single := m
	single.Batch = joined(m.Batch, env.Cluster().TotalDevices()/stages*micro)
	want, err := TrainOn(Plain(), Dataset{single.Batch}, single, sgd(), steps)
	if err != nil {
		return err
	}
	w.report(fmt.Sprintf("%s, %d micro-batches:", m.Name, micro), got)
	return cmp.Or(CloseWeights(want, got, 1e-5), CloseLosses(want, got, 1e-5))
}
