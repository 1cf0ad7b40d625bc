package launch

import (
	"fmt"

	"github.com/easyparallel/epl/rendezvous"
)

// doing says what a worker was doing when something killed it, as far as the rendezvous knows; "" if it had not joined, or ended by itself: then its own words say more.
// Workers take their steps together, so the one that was heard of last counts.
func doing(e *exit, known []rendezvous.WorkerStatus) string {
	if e.Signal == 0 || e.Worker >= len(known) || !known[e.Worker].Joined {
		return ""
	}
	var step int64
	for _, w := range known {
		step = max(step, w.Loaded+w.Step)
	}
	what := "training"
	if busy := known[e.Worker].Busy; busy != "" {
		what = busy
	}
	if step == 0 {
		return fmt.Sprintf("; it was %s, before the end of the first step", what)
	}
	return fmt.Sprintf("; it was %s, after step %d", what, step)
}
