// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// failing is an executable of a backend that cannot go on.
type failing struct {
	compute.Executable
	err error
}

func (f failing) Execute([]compute.Buffer, []bool, compute.DeviceNum) ([]compute.Buffer, error) {
	return nil, f.err
}

func TestABackendThatRunsOutOfMemoryGetsTheAccount(t *testing.T) {
	cfg, err := config.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := newCompiled(ir.NewProgram("train"), 1, cfg)
	c.Account = &schedule.Account{Places: []schedule.PlaceAccount{
		{Peak: schedule.Bytes{schedule.ForWeights: 1 << 20, schedule.ForActivations: 3 << 20}, Text: "run instance.0"},
	}}
	for text, accounts := range map[string]bool{
		"RESOURCE_EXHAUSTED: Out of memory while trying to allocate 123 bytes": true,
		"CUDA_ERROR_OUT_OF_MEMORY":    true,
		"INVALID_ARGUMENT: bad shape": false,
	} {
		_, err := accounted{failing{err: errors.New(text)}, Options{Config: cfg}, c}.Execute(nil, nil, 0)
		for _, want := range []string{"device 0 needs 4.0 MiB", "at run instance.0", "activations  3.0 MiB", "weights      1.0 MiB", "smaller micro-batch"} {
			if strings.Contains(err.Error(), want) != accounts {
				t.Errorf("%s: %q is said: %v, in:\n%v", text, want, !accounts, err)
			}
		}
		if !strings.HasPrefix(err.Error(), text) {
			t.Errorf("the backend's own words are lost: %v", err)
		}
	}
}

func TestAStepThatNeedsMoreThanTheMachineHasIsRefused(t *testing.T) {
	cfg, err := config.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	program := ir.NewProgram("train")
	program.Gradients = []ir.Gradient{{}}
	c := newCompiled(program, 1, cfg)
	c.Account = &schedule.Account{Places: []schedule.PlaceAccount{{Peak: schedule.Bytes{schedule.ForActivations: 3 << 20}, Text: "run instance.0"}}}
	for host, refused := range map[int64]bool{0: false, 4 << 20: false, 2 << 20: true} {
		err := Options{Config: cfg, Host: host}.fits(c)
		if (err != nil) != refused {
			t.Errorf("a machine of %d bytes: %v", host, err)
		}
		if refused && !strings.Contains(err.Error(), "device 0 needs 3.0 MiB and has 2.0 MiB (the memory of this machine)") {
			t.Error(err)
		}
	}
}

func TestAFileOfAPlanThatCannotBeWrittenIsNamed(t *testing.T) {
	folder := t.TempDir()
	file, other := filepath.Join(folder, "plan.txt.svg"), filepath.Join(folder, "plan.txt.json")
	if err := os.Mkdir(file, 0o755); err != nil {
		t.Fatal(err)
	}
	nothing := func(io.Writer) error { return nil }
	if err := writeFiles([]planFile{{file, nothing}, {other, nothing}}); err == nil || !strings.Contains(err.Error(), "plan.txt.svg") {
		t.Error(err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}
