// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"testing"

	"github.com/easyparallel/epl/rendezvous"
)

func TestWhatAWorkerDidWhenItWasKilledIsSaid(t *testing.T) {
	known := []rendezvous.WorkerStatus{{Joined: true, Step: 7}, {Joined: true, Step: 6, Busy: "saving", Ranks: "rank 1"}, {}, {Joined: true, Ranks: "ranks 4 to 7"}}
	for want, test := range map[string]struct {
		e     exit
		known []rendezvous.WorkerStatus
	}{
		"; it was training, after step 7":                       {exit{Worker: 0, Signal: 9}, known},
		"; it had rank 1, and was saving, after step 7":         {exit{Worker: 1, Signal: 9}, known},
		"; it had ranks 4 to 7, and was training, after step 7": {exit{Worker: 3, Lost: hadToBeEnded}, known},
		"; it was training, before the end of the first step":   {exit{Worker: 0, Signal: 9}, []rendezvous.WorkerStatus{{Joined: true}}},
		"; it had not joined the job yet":                       {exit{Worker: 2, Signal: 9}, known},
	} {
		if got := doing(&test.e, test.known); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	for _, e := range []exit{{Worker: 0, Code: 1}, {Worker: 5, Signal: 9}, {Worker: 2, Lost: hadToBeEnded}, {Worker: 0, Lost: "its machine was lost"}} {
		if got := doing(&e, known); got != "" {
			t.Errorf("%q is said of a worker that ended by itself, is not known, or did not come: %+v", got, e)
		}
	}
}
