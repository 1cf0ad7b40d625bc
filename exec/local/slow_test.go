// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"

	"github.com/easyparallel/epl/exec/local"
	"github.com/easyparallel/epl/ir"
)

// A device that is slowed down on purpose is measured as one that is slow.
func TestSpeedsAreThoseOfSlowDevices(t *testing.T) {
	var devices []compute.Backend
	for range 2 {
		b, err := gobackend.New("ops_sequential")
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, b)
	}
	d := local.New(nil, devices...)
	defer d.Finalize()
	d.Slow = func(device int, _ *ir.Segment) time.Duration { return time.Duration(device) * 2 * time.Second }
	speeds, err := d.Speeds()
	if err != nil {
		t.Fatal(err)
	}
	// How fast the first is depends on what else the machine does; the second cannot be done in less than 2 seconds.
	if len(speeds) != 2 || speeds[1] <= 0 || speeds[1] > 0.5 || speeds[0] <= speeds[1] {
		t.Errorf("speeds %v; the second takes 2 s for what takes others a few milliseconds, or more under the race detector", speeds)
	}
}
