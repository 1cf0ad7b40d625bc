// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cost"
)

// calibrated is the profile of a machine whose devices take long to meet.
const calibrated = `{"name": "this", "bandwidth": "10GB/s", "rates": {"dot/float32": 1e11}, "within": {"latency": "1ms", "bandwidth": "10GB/s"}}`

// A machine that was calibrated has fewer buckets if its links ask for that, and computes the same bits.
func TestBucketsByMeasurementChangeNoBit(t *testing.T) {
	const devices = 3 // sums of two are the same in any order
	m := Models()[1]
	run := func(settings map[string]any) (*Run, string) {
		t.Helper()
		env := newCluster(t, devices, 1, settings)
		got, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 3)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := env.Explain(&text); err != nil {
			t.Fatal(err)
		}
		return got, text.String()
	}
	t.Setenv(cost.EnvProfiles, t.TempDir())
	want, usual := run(nil)
	if err := os.WriteFile(filepath.Join(os.Getenv(cost.EnvProfiles), cost.This+".json"), []byte(calibrated), 0o644); err != nil {
		t.Fatal(err)
	}
	const why = "gradients are fused by what links take: 1 bucket instead of 5"
	got, text := run(nil)
	if !strings.Contains(text, why) || strings.Contains(usual, why) {
		t.Errorf("the plan of a calibrated machine says\n%s", text)
	}
	sameBits(t, want, got)
	if _, text := run(map[string]any{"communication.max_splits": 5}); strings.Contains(text, why) {
		t.Errorf("the user said 5 buckets, and the plan says\n%s", text)
	}
}
