// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"strings"
	"testing"

	"github.com/easyparallel/epl"
)

// weighted is an environment in which the devices of each model replica have these speeds.
func (p splitPlan) weighted(t *testing.T, speeds []string, params map[string]any) *epl.Env {
	t.Helper()
	var all []string
	for range p.replicas {
		all = append(all, speeds...)
	}
	file, err := describe(t.TempDir(), strings.Join(all, ", "))
	if err != nil {
		t.Fatal(err)
	}
	with := map[string]any{"cluster.description": file}
	for k, v := range params {
		with[k] = v
	}
	return p.env(t, with)
}

// mustSay looks for words in what Explain prints.
func mustSay(t *testing.T, env *epl.Env, want string) {
	t.Helper()
	var w strings.Builder
	if err := env.Explain(&w); err != nil || !strings.Contains(strings.Join(strings.Fields(w.String()), " "), want) { // lines are wrapped
		t.Errorf("%v: Explain does not say %q:\n%s", err, want, &w)
	}
}

// Of unequal devices of a TaskGraph, faster ones get more rows of variables, or of the batch.
func TestUnequalPartsGiveTheWeightsOfOneDevice(t *testing.T) {
	for i, m := range PartedModels() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			p := m.whole(3, 1+i%2, 1+i/2%2)
			env := p.weighted(t, []string{"3", "1", "2"}, nil)
			mustBeClose(t, m.measure(t, p, 3), m.under(p).piped(t, env, 0, sgd(), 3))
			mustSay(t, env, "get parts in proportion to 3, 1 and 2, because they are unequal")
		})
	}
}

// TaskGraphs after each other divide in other ways, or are on the same devices.
func TestUnequalPartsBesideOthersGiveTheWeightsOfOneDevice(t *testing.T) {
	for _, c := range []struct {
		model  string
		plan   splitPlan
		speeds []string
		params map[string]any
		want   string
	}{
		{"mlp", splitPlan{parts: []int{-2, 1}, replicas: 1, micro: 3}, []string{"2", "1", "1"}, nil, "2 and 1"},
		{"mlp", splitPlan{parts: []int{-2, 2}, replicas: 2, micro: 2}, []string{"2", "1", "1", "4"}, nil, "1 and 4"},
		{"transformer", splitPlan{parts: []int{-2, 3}, replicas: 1, micro: 2}, []string{"1", "3", "1", "1", "2"}, nil, "1 and 3"},
		{"classifier", splitPlan{parts: []int{-3, 3}, colocate: true, replicas: 1, micro: 2}, []string{"1", "2", "1"}, nil, "1, 2 and 1"},
		{"classifier", splitPlan{parts: []int{-2, 2}, colocate: true, replicas: 2, micro: 1}, []string{"3", "2"}, map[string]any{"zero.level": "v1"}, "3 and 2"},
		{"transformer", splitPlan{parts: []int{2}, replicas: 2, micro: 2}, []string{"3", "2"}, map[string]any{"zero.level": "v2", "gradient_checkpoint.type": "auto"}, "3 and 2"},
		{"mlp", splitPlan{parts: []int{-2}, replicas: 1, micro: 1}, []string{"2", "1"}, map[string]any{"offload.level": "v0"}, "2 and 1"},
	} {
		t.Run(c.model+" "+c.plan.String(), func(t *testing.T) {
			t.Parallel()
			m := partedModel(c.model)
			env := c.plan.weighted(t, c.speeds, c.params)
			got := m.under(c.plan).piped(t, env, 0, sgd(), 3)
			mustBeClose(t, m.measure(t, c.plan, 3), got)
			m.under(c.plan).mustEvaluateAlike(t, env, got.Store, 0, 8, 8)
			mustSay(t, env, "in proportion to "+c.want+", because they are unequal")
		})
	}
}

// Where the fast device has too little memory for its part, some of it moves to the slow one, and the step stays within what devices have.
func TestPartsThatMoveForMemoryGiveTheWeightsOfOneDevice(t *testing.T) {
	for _, c := range []struct {
		model string
		plan  splitPlan
	}{
		{"transformer", splitPlan{parts: []int{2}, replicas: 2, micro: 2}},
		{"classifier", splitPlan{parts: []int{2}, replicas: 1, micro: 3}},
	} {
		t.Run(c.model, func(t *testing.T) {
			t.Parallel()
			m, speeds := partedModel(c.model), []string{"4", "1"}
			free := c.plan.weighted(t, speeds, nil)
			m.under(c.plan).piped(t, free, 0, sgd(), 1)
			env := c.plan.weighted(t, speeds, map[string]any{"cluster.device_memory": free.Plan().Costs.Devices[0].Peak * 9 / 10})
			mustBeClose(t, m.measure(t, c.plan, 3), m.under(c.plan).piped(t, env, 0, sgd(), 3))
			mustSay(t, env, "by speed, as far as their memory allows it")
		})
	}
}
