// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cost"
)

// On CPUs MFU is by what was measured of this machine, and is left out where nothing was. Devices share the cores: two have no more of them than one.
func TestMFUOnCPUsIsByTheProfileOfThisMachine(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(cost.EnvProfiles, folder)
	if _, out := learn(t, "-steps 3 -eval 3"); strings.Contains(out, "MFU") {
		t.Errorf("nothing was measured:\n%s", out)
	}
	flat := cost.Flat(2e9, 1e9, time.Microsecond)
	flat.Cores, flat.Teams = 2, map[int]*cost.Profile{2: cost.Flat(3e9, 1e9, time.Microsecond)}
	text, err := flat.MarshalJSON()
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, cost.This+".json"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, out := learn(t, "-steps 3 -eval 3"); !strings.Contains(out, " MFU ") {
		t.Errorf("it is missing:\n%s", out)
	}
	for devices, want := range map[int]float64{1: 3e9, 2: 4e9, 4: 4e9} {
		env, err := epl.Init(nil, epl.WithLocalDevices(devices))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parse(t, tiny).peak(env); err != nil || got != want {
			t.Errorf("%d devices: %g, %v; want %g", devices, got, err, want)
		}
		env.Close()
	}
}
