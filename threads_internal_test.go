// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"strings"
	"testing"
)

func TestTheCoresOfAMachineAreDividedByItsDevices(t *testing.T) {
	for _, c := range []struct{ asked, share, workers, devices, here, want int }{
		{0, 1, 1, 1, 1, 1},
		{0, 64, 1, 1, 1, 64},
		{0, 2, 1, 2, 2, 1},
		{0, 8, 1, 3, 3, 2},
		{0, 2, 1, 8, 8, 1},  // more devices than cores
		{0, 4, 2, 2, 4, 2},  // two workers with 2 of 4 devices each
		{0, 6, 2, 2, 6, 2},  // a worker of 2 devices beside one of 4: all have as many
		{0, 6, 2, 4, 6, 1},  // that one
		{1, 2, 1, 8, 8, 1},  // every device has a thread
		{2, 8, 1, 4, 4, 2},  // as many as there are
		{1, 64, 1, 1, 1, 1}, // less
	} {
		if got, err := threadsPerDevice(c.asked, c.share, c.workers, c.devices, c.here); err != nil || got != c.want {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
	_, err := threadsPerDevice(4, 6, 2, 2, 4)
	const want = "epl: cluster.cores_per_device is 4, but the devices of the job on this machine are 4, and its cores 12; use at most 3, or 0, which divides them"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

func TestCoresPerDeviceAreOfTheCPUEngine(t *testing.T) {
	cfg, err := NewConfig(map[string]any{"cluster.cores_per_device": 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Init(cfg, WithInner("go")); err == nil || !strings.Contains(err.Error(), `is of the inner backend "cpu"`) {
		t.Error(err)
	}
	env, err := Init(cfg, WithInner("cpu"), WithLocalDevices(3))
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	if text := env.Backend().Description(); !strings.Contains(text, "1 thread") {
		t.Errorf("%q does not say how many threads a device has", text)
	}
	if cfg, err = NewConfig(map[string]any{"cluster.cores_per_device": 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(cfg, WithInner("cpu")); err == nil || !strings.Contains(err.Error(), "cluster.cores_per_device is 1048576, but the devices of the job on this machine are 1") {
		t.Error(err)
	}
	if _, err := NewConfig(map[string]any{"cluster.cores_per_device": -1}); err == nil || !strings.Contains(err.Error(), "an integer of at least 0") {
		t.Error(err)
	}
}
