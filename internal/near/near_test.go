// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package near

import "testing"

func TestTheClosestNameIsWhatWasMeant(t *testing.T) {
	names := []string{"num_workers", "gpu_per_worker", "hosts", "debug"}
	for name, want := range map[string]string{
		"num-worker": "num_workers", "NumWorkers": "num_workers", "host": "hosts", "debg": "debug", "gpus_per_worker": "gpu_per_worker",
		"fast": "", "x": "", "": "",
	} {
		if got := Closest(name, names); got != want {
			t.Errorf("%q is taken for %q, want %q", name, got, want)
		}
	}
	if got := Closest("debug", nil); got != "" {
		t.Errorf("none of none is %q", got)
	}
}
