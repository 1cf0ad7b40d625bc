// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/easyparallel/epl/internal/procmem"
)

// The tests start themselves as the command does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-row" {
		main()
		return
	}
	os.Exit(m.Run())
}

var small = workload{Layers: 3, Width: 128, Length: 64, Batch: 8, Devices: 1, Steps: 2}

// The garbage collector lets a process take more than it needs, and so do the sizes in which the pure-Go backend keeps
// buffers: the bounds are wide.
func TestTheProcessTakesAboutWhatIsPredicted(t *testing.T) {
	if procmem.Peak() == 0 {
		t.Skip("this system does not say what a process takes: it has no /proc/self/status")
	}
	plain, err := start(job{Workload: small})
	if err != nil {
		t.Fatal(err)
	}
	if plain.Metered != plain.Predicted || plain.Predicted < 20<<20 {
		t.Errorf("predicted %d bytes, metered %d", plain.Predicted, plain.Metered)
	}
	if plain.Process < plain.Predicted*8/10 || plain.Process > 3*plain.Predicted+(64<<20) {
		t.Errorf("predicted %d bytes, and the process took %d", plain.Predicted, plain.Process)
	}
}

func TestAModelThatDoesNotFitIsARow(t *testing.T) {
	row, err := start(job{Workload: small, Limit: 10 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if row.Refused != "does not fit" || row.Predicted < 20<<20 {
		t.Errorf("%+v", row)
	}
	row, err = start(job{Workload: small, Settings: map[string]any{"zero.level": "v9"}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(row.Refused, "zero.level") {
		t.Errorf("%+v", row)
	}
}
