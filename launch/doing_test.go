package launch

import (
	"testing"

	"github.com/easyparallel/epl/rendezvous"
)

func TestWhatAWorkerDidWhenItWasKilledIsSaid(t *testing.T) {
	known := []rendezvous.WorkerStatus{{Joined: true, Step: 7}, {Joined: true, Step: 6, Busy: "saving"}, {}}
	for want, test := range map[string]struct {
		e     exit
		known []rendezvous.WorkerStatus
	}{
		"; it was training, after step 7":                     {exit{Worker: 0, Signal: 9}, known},
		"; it was saving, after step 7":                       {exit{Worker: 1, Signal: 9}, known},
		"; it was training, before the end of the first step": {exit{Worker: 0, Signal: 9}, []rendezvous.WorkerStatus{{Joined: true}}},
		"": {exit{Worker: 2, Signal: 9}, known},
	} {
		if got := doing(&test.e, test.known); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	if got := doing(&exit{Worker: 0, Code: 1}, known) + doing(&exit{Worker: 5, Signal: 9}, known); got != "" {
		t.Errorf("%q is said of a worker that was not killed, or is not known", got)
	}
}
