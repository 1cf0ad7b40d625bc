// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
)

// What EPL says before the first step is what devices need, within a tenth.
func TestTheMemoryOfEachDeviceIsForetold(t *testing.T) {
	techniques := []string{"", "EPL_GRADIENT_CHECKPOINT_TYPE=auto", "EPL_ZERO_LEVEL=v0", "EPL_ZERO_LEVEL=v1", "EPL_ZERO_LEVEL=v2",
		"EPL_OFFLOAD_LEVEL=v0", "EPL_AMP_LEVEL=O1", "EPL_OPTIMIZER_NUM_APPLY_GROUP=4"}
	for line, techniques := range map[string][]string{
		"-devices 1": techniques[:2], "-devices 1 -micro_batches 2": techniques[:2], "-devices 2": techniques,
		"-devices 2 -stages 2 -micro_batches 2": techniques[:2], "-devices 4 -stages 2 -micro_batches 3": techniques[:2],
	} {
		for _, technique := range techniques {
			t.Run(fmt.Sprintf("%s %s", line, technique), func(t *testing.T) {
				if key, value, ok := strings.Cut(technique, "="); ok {
					t.Setenv(key, value)
				}
				f := parse(t, "-layers 4 -hidden 32 -heads 2 -batch 4 -max_seq_length 32 -max_query_length 12 -warmup 0 -steps 2 -eval 2 "+line)
				tok, err := f.vocabulary()
				if err != nil {
					t.Fatal(err)
				}
				data, err := sampleQuestions()
				if err != nil {
					t.Fatal(err)
				}
				data.train, data.dev = data.train[:24], data.dev[:1]
				data.prepare(tok, f.window)
				env, err := f.init()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = env.Close() })
				if _, err := fit(env, f.network(tok.Size()), data, f, io.Discard); err != nil {
					t.Fatalf("%+v", err)
				}
				predicted := env.Predicted().Devices
				for d, x := range env.Stats().Devices {
					if want := predicted[d].PeakBytes; math.Abs(float64(x.PeakBytes)/float64(want)-1) > 0.1 {
						t.Errorf("device %d: metered %d bytes %v, predicted %d %v", d, x.PeakBytes, x.Peak, want, predicted[d].Peak)
					}
				}
			})
		}
	}
}
