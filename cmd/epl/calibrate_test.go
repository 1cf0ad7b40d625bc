package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/easyparallel/epl/cost"
)

func TestCalibrateWritesTheProfileOfThisMachine(t *testing.T) {
	clearEnvironment(t)
	dir := filepath.Join(t.TempDir(), "profiles")
	t.Setenv(cost.EnvProfiles, dir)
	status, stdout, stderr := epl(t, "calibrate", "--each", "1ns", "--transports", "in-process")
	for _, want := range []string{"cores of a device", "dot/float32", "FLOP/s", "devices of a worker", "written to " + filepath.Join(dir, "this.json")} {
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("status %d, it does not say %q:\n%s\n%s", status, want, stdout, stderr)
		}
	}
	if !strings.Contains(stderr, "transport in-process") || strings.Contains(stderr, "transport tcp") {
		t.Errorf("progress is %s", stderr)
	}
	p, err := cost.Find(cost.This)
	if err != nil || p.Within == nil || p.Between != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if status, _, stderr := epl(t, "calibrate", "--transports", "pigeons"); status != 2 || !strings.Contains(stderr, "use in-process, shared-memory, tcp") {
		t.Errorf("status %d, %s", status, stderr)
	}
}
