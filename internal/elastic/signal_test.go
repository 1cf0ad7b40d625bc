// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/easyparallel/epl/launch"
)

// signalled is a job whose launcher gets a signal after a step.
func (j job) signalled(t *testing.T, s os.Signal, step int) (status int, said string) {
	t.Helper()
	signals := make(chan os.Signal, 1)
	j.Signals = signals
	j.hear = func(line string) {
		if strings.HasPrefix(line, fmt.Sprintf("[0] step %d ", step)) {
			signals <- s
		}
	}
	return j.run(t)
}

func TestAJobSavesOnASignalAndGoesOnLater(t *testing.T) {
	t.Parallel()
	const steps = 24
	plain := job{work: work{Dir: t.TempDir(), Steps: steps, Every: 1000}, Options: launch.Options{Workers: 3}}
	if status, said := plain.run(t); status != 0 {
		t.Fatal(said)
	}
	for name, c := range map[string]struct {
		min    int
		signal syscall.Signal
		status int
	}{
		"a scheduler warns":          {0, syscall.SIGUSR1, 0},
		"a scheduler warns, elastic": {2, syscall.SIGUSR1, 0},
		"the job is to end":          {0, syscall.SIGTERM, 128 + 15},
		"the job is to end, elastic": {2, syscall.SIGTERM, 128 + 15},
	} {
		t.Run(name, func(t *testing.T) {
			j := job{work: work{Dir: t.TempDir(), Steps: steps, Every: 1000, Pause: 3 * pause, Signal: true},
				Options: launch.Options{Workers: 3, MinWorkers: c.min, MaxRestarts: c.min / 2, Grace: 20 * time.Second}}
			status, said := j.signalled(t, c.signal, 5)
			if status != c.status || strings.Count(said, "] interrupted\n") != 3 || strings.Contains(said, "step 20 ") {
				t.Fatalf("status %d:\n%s", status, said)
			}
			j.hear = nil
			if status, said := j.run(t); status != 0 || strings.Contains(said, "[0] step 5 ") {
				t.Fatalf("status %d:\n%s", status, said)
			}
			same(t, weights(t, plain.Dir, steps), weights(t, j.Dir, steps), 0)
		})
	}
}

// A worker that is taken away by its own signal leaves a checkpoint to the others, who go on without it.
func TestAWorkerThatIsTakenAwayLeavesACheckpoint(t *testing.T) {
	t.Parallel()
	j := job{work: work{Dir: t.TempDir(), Steps: 24, Every: 1000, Pause: 3 * pause, Signal: true},
		Options: launch.Options{Workers: 3, MinWorkers: 2, MaxRestarts: 2, RestartDelay: time.Hour}}
	running, sent := pids{}, false
	j.hear = func(line string) {
		running.hear(line)
		if !sent && strings.HasPrefix(line, "[0] step 5 ") {
			sent = true
			syscall.Kill(running[1], syscall.SIGTERM)
		}
	}
	status, said := j.run(t)
	if status != 0 || strings.Contains(said, "[0] interrupted\n") || !strings.Contains(said, "[1] interrupted\n") || strings.Count(said, "[0] step 5 ") != 1 {
		t.Errorf("status %d:\n%s", status, said)
	}
}
