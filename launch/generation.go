// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/easyparallel/epl/rendezvous"
)

// generation is one start of the workers of an elastic job, from the first to the end of all.
type generation struct {
	Number  int   // from 1
	Members []int // the seats of its workers, by index

	Loaded  int64     // global step of the checkpoint that it went on from; 0: there was none
	Saved   int64     // global step of its newest checkpoint, Loaded if it has saved none
	Copied  int64     // the newest step that it has copied to memory
	Step    int64     // global step up to which its workers came
	Batches int64     // of the data, that were consumed up to there; 0: not known
	End     int64     // the step that training was to end at; 0: not known
	Stepped time.Time // when all workers had taken their first step; zero: they have not

	back *int64 // Saved or Copied when seats that were empty had workers again; nil: there are none

	Reason string    // why it ended; "": the job is done
	Error  string    // what tells this failure from others
	Failed bool      // because of a failure
	Died   time.Time // when that was heard of
	Worker int       // that is to blame; -1: not known
	Killed bool      // by something outside the program, for all that is known
	Lost   []int     // the seats whose workers have failed
}

// observe takes over what the rendezvous knows of the workers.
func (g *generation) observe(known []rendezvous.WorkerStatus) {
	all := len(known) > 0
	var stepped time.Time
	for _, w := range known {
		g.Loaded = max(g.Loaded, w.Loaded)
		g.Saved = max(g.Saved, g.Loaded, w.Saved)
		g.Step = max(g.Step, w.Loaded+w.Step)
		g.End = max(g.End, w.End)
		g.Copied = max(g.Copied, w.Copied)
		g.Batches = max(g.Batches, w.Batches)
		if all = all && !w.Stepped.IsZero(); w.Stepped.After(stepped) {
			stepped = w.Stepped
		}
	}
	if all && g.Stepped.IsZero() {
		g.Stepped = stepped
	}
}

// end takes over how the workers ended.
func (g *generation) end(d *director) {
	g.Died, g.Worker = d.died, -1
	if g.Reason = d.retired; g.Reason != "" {
		return
	}
	if d.first == nil && d.failure == "" {
		return
	}
	g.Failed, g.Reason, g.Error = true, d.reason(), alike(d.failure)
	lost := map[int]bool{}
	if len(d.blamed) < len(g.Members) { // of two ends of a connection that broke one must go on
		for _, w := range d.blamed {
			lost[w] = true
		}
	}
	for w, e := range d.exits {
		lost[w] = lost[w] || e.Signal != 0 || e.Lost != "" // several may be killed at once
	}
	if c := d.culprit(); c != nil {
		g.Worker, g.Killed = c.Worker, c.Signal == int(syscall.SIGKILL) || c.Lost != ""
		if g.Error = d.display.lastLine(c.Worker); g.Error != "" && !strings.Contains(g.Reason, g.Error) {
			g.Reason += "; its last line: " + g.Error
		}
		g.Error = c.how() + "\n" + alike(g.Error) // others may notice it here or there, and so give different reasons
		lost[c.Worker] = true
	}
	for w, seat := range g.Members {
		if lost[w] {
			g.Lost = append(g.Lost, seat)
		}
	}
}

// numbers differ between two errors that are the same: process numbers, addresses, and which of the workers came first.
var numbers = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+`)

func alike(text string) string { return numbers.ReplaceAllString(text, "#") }

// repeats tells whether the generation ended as another did: at the same step, and with the same error.
func (g *generation) repeats(other *generation) bool {
	return g.Failed && other.Failed && g.Step == other.Step && g.Killed == other.Killed && g.Error == other.Error &&
		(!g.Killed || g.Worker == other.Worker)
}

const (
	// sameFailures at the same step end a job.
	sameFailures = 2
	// sameKills do if something killed the worker that may have nothing to do with what it did.
	sameKills = 3
)

// loops tells why it would be of no use to start the workers anew after these generations; "": it may be. A worker that is killed before its first
// step says nothing: those who kill workers may have no patience.
func loops(past []generation) string {
	last := &past[len(past)-1]
	if !last.Failed || last.Killed && last.Step == last.Loaded {
		return ""
	}
	times := 1
	for i := len(past) - 2; i >= 0 && last.repeats(&past[i]); i-- {
		times++
	}
	if times < sameFailures || last.Killed && times < sameKills {
		return ""
	}
	where := fmt.Sprintf("after step %d", last.Step)
	if last.Step == 0 {
		where = "before the first step"
	}
	if last.Batches > 0 {
		where += fmt.Sprintf(" (the next batch of the data is number %d, counted from 0 over all epochs)", last.Batches)
	}
	return fmt.Sprintf("the workers failed %d times in a row with the same error, %s: %s. Starting them anew would not help", times, where, last.Reason)
}
