// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"strings"
	"testing"

	"github.com/easyparallel/epl/schedule"
)

// A plan that does not fit is refused before; this is for what the plan did not foresee.
func TestTheMeterStopsADeviceThatNeedsMoreThanItHas(t *testing.T) {
	m := &meter{device: 3, limit: 100}
	if err := m.add(schedule.ForWeights, 60); err != nil {
		t.Fatal(err)
	}
	need := schedule.Need{Peak: schedule.Bytes{schedule.ForTemporaries: 41}}
	err := m.during(need)
	const want = "epl: device 3 needs 101 B and has 100 B (cluster.device_memory): weights 60 B, temporaries 41 B; use a smaller micro-batch, or more devices"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := m.add(schedule.ForWeights, 40); err != nil {
		t.Errorf("all that it has is not too much: %v", err)
	}
	if err := m.add(schedule.ForGradients, 1); err == nil || !strings.Contains(err.Error(), "gradients 1 B") {
		t.Error(err)
	}
}

func TestTheMeterRemembersThePeakAndTheMostOfEach(t *testing.T) {
	m := &meter{}
	for _, x := range []struct {
		use   schedule.Use
		bytes int64
	}{{schedule.ForActivations, 50}, {schedule.ForActivations, -50}, {schedule.ForWeights, 40}, {schedule.ForGradients, 20}, {schedule.ForGradients, -20}} {
		if err := m.add(x.use, x.bytes); err != nil {
			t.Fatal(err)
		}
	}
	peak := schedule.Bytes{schedule.ForWeights: 40, schedule.ForGradients: 20}
	most := schedule.Bytes{schedule.ForWeights: 40, schedule.ForGradients: 20, schedule.ForActivations: 50}
	if b := m.books; b.Peak != peak || b.Most != most {
		t.Errorf("peak %v, most %v", b.Peak, b.Most)
	}
}
