// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
)

// decided is the plan of a small network on a described cluster.
func decided(t *testing.T, devices []int, settings map[string]string) *plan.Plan {
	t.Helper()
	c, err := cluster.New(cluster.Spec{Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Of(settings)
	if err != nil {
		t.Fatal(err)
	}
	set, err := passes.Parse("", nil)
	if err != nil {
		t.Fatal(err)
	}
	pl, _, err := plan.Decide(recorded(t, equiv.Models()[0]), cfg, plan.Target{Cluster: c, Passes: set, AsWritten: true})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return pl
}

func encoded(t *testing.T, pl *plan.Plan) string {
	t.Helper()
	var b bytes.Buffer
	if err := pl.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The cluster need not exist, and whoever decides finds the same.
func TestDecideIsDeterministicForAClusterThatIsOnlyDescribed(t *testing.T) {
	settings := map[string]string{"zero.level": "v2", "cluster.colocate_split_and_replicate": "true"}
	devices := make([]int, 64)
	for i := range devices {
		devices[i] = 8
	}
	a, b := decided(t, devices, settings), decided(t, devices, settings)
	if a.Replicas != 512 {
		t.Errorf("%d model replicas on 512 devices", a.Replicas)
	}
	if x, y := encoded(t, a), encoded(t, b); x != y {
		t.Errorf("two plans for the same differ:\n%s", plan.Diff(a, b))
	}
	if plan.Diff(a, b) != "" {
		t.Errorf("equal plans differ:\n%s", plan.Diff(a, b))
	}
}

func TestAPlanReadsBackAsItWasWritten(t *testing.T) {
	pl := decided(t, []int{2, 3}, map[string]string{"gradient_checkpoint.type": "auto", "optimizer.num_apply_group": "2", "cluster.colocate_split_and_replicate": "true"})
	got, err := plan.Decode(strings.NewReader(encoded(t, pl)))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, pl) {
		t.Errorf("it is another one:\n%s", plan.Diff(pl, got))
	}
}

func TestADifferenceSaysWhatItCosts(t *testing.T) {
	colocated := map[string]string{"cluster.colocate_split_and_replicate": "true"}
	a := decided(t, []int{4}, colocated)
	b := decided(t, []int{4}, map[string]string{"cluster.colocate_split_and_replicate": "true", "zero.level": "v2", "pipeline.num_micro_batch": "2"})
	diff := plan.Diff(a, b)
	for _, want := range []string{"zero.level", "→ v2", "pipeline.num_micro_batch", "weights flat over replicas", "costs\n", "memory of the device that needs most",
		"bytes of weights gathered over replicas"} {
		if !strings.Contains(diff, want) {
			t.Errorf("it does not say %q:\n%s", want, diff)
		}
	}
	if strings.Contains(diff, "cluster") {
		t.Errorf("it says what is the same:\n%s", diff)
	}
}

func TestAPlanThatIsNoneIsRefused(t *testing.T) {
	text := encoded(t, decided(t, []int{3}, nil))
	for what, c := range map[string]struct{ text, want string }{
		"no JSON":       {"plan", "this is no plan"},
		"no version":    {"{}", "this is no plan"},
		"a later one":   {strings.Replace(text, `"version": 2`, `"version": 99`, 1), "version 99"},
		"unknown words": {strings.Replace(text, `"replicas"`, `"replikas"`, 1), "replikas"},
	} {
		if _, err := plan.Decode(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
