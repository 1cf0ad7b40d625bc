// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/easyparallel/epl/launch"
)

var (
	kills     = flag.Int("elastic.kills", 1, "how many workers to kill under each plan")
	launchers = flag.Int("elastic.launchers", 1, "how many launchers to kill")
	seed      = flag.Uint64("elastic.seed", 1, "of the random moments")
)

// plans are those under which workers are killed.
var plans = map[string]job{
	"data parallel": {Options: launch.Options{Workers: 3}},
	"pipeline": {Options: launch.Options{Workers: 2, DevicesPerWorker: 2},
		work: work{Config: map[string]any{"cluster.colocate_split_and_replicate": false, "pipeline.num_micro_batch": 2}}},
	"split":   {Options: launch.Options{Workers: 2}, work: work{Split: 2}},
	"ZeRO v2": {Options: launch.Options{Workers: 2}, work: work{Config: map[string]any{"cluster.colocate_split_and_replicate": true, "zero.level": "v2"}}},
}

// killer kills one worker of every generation, after a moment, as long as there are kills left.
type killer struct {
	mu      sync.Mutex
	random  *rand.Rand
	workers int
	running pids
	left    int
}

// within is how long a generation lives at most before a worker is killed: it has to start, to load, and to train for a while.
const within = 900 * time.Millisecond

func (k *killer) hear(line string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running.hear(line); len(k.running) < k.workers {
		return
	}
	victim := k.running[k.random.IntN(k.workers)]
	k.running = pids{} // of the next generation
	if k.left == 0 {
		return
	}
	time.AfterFunc(time.Duration(k.random.Int64N(int64(within))), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if syscall.Kill(victim, syscall.SIGKILL) == nil {
			k.left--
		}
	})
}

// killLoop kills workers under each plan, and checks after each job that its weights are those of an undisturbed one; check looks at what the job has said.
func killLoop(t *testing.T, stream uint64, change func(*work), check func(t *testing.T, said string) (what string)) {
	const steps = 40
	for name, j := range plans {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(*seed, stream))
			j.work.Steps, j.work.Every, j.work.Dir = steps, 1000, t.TempDir()
			if status, said := j.run(t); status != 0 {
				t.Fatal(said)
			}
			want := weights(t, j.Dir, steps)
			change(&j.work)
			j.work.Pause, j.MinWorkers, j.MaxRestarts = pause, j.Workers, 1000
			for left := *kills; left > 0; {
				j.work.Dir = filepath.Join(t.TempDir(), "checkpoints")
				k := &killer{random: random, workers: j.Workers, running: pids{}, left: min(left, 10)}
				j.hear = k.hear
				status, said := j.run(t)
				if status != 0 {
					t.Fatalf("status %d:\n%s", status, said)
				}
				killed := min(left, 10) - k.left
				left -= killed
				same(t, want, weights(t, j.Dir, steps), 0) // every step ran under the same plan
				t.Logf("%d killed, %d to go%s", killed, left, check(t, said))
				if t.Failed() {
					t.Fatal(said)
				}
			}
		})
	}
}

func TestKillLoop(t *testing.T) {
	t.Parallel()
	killLoop(t, 0, func(w *work) { w.Every = 4 }, func(*testing.T, string) string { return "" })
}

// A launcher that is killed takes its workers along, and the job goes on when it is started again.
func TestAKilledLauncherLeavesNothing(t *testing.T) {
	const steps = 30
	plain := job{work: work{Dir: t.TempDir(), Steps: steps, Every: 1000}, Options: launch.Options{Workers: 2}}
	if status, said := plain.run(t); status != 0 {
		t.Fatal(said)
	}
	want := weights(t, plain.Dir, steps)
	random := rand.New(rand.NewPCG(*seed, 1))
	for range *launchers {
		j := job{work: work{Dir: t.TempDir(), Steps: steps, Every: 3, Pause: pause}, Options: launch.Options{Workers: 2, MinWorkers: 2, MaxRestarts: 2}}
		killLauncher(t, j, time.Duration(random.Int64N(int64(within))))
		if status, said := j.run(t); status != 0 {
			t.Fatal(said)
		}
		same(t, want, weights(t, j.Dir, steps), 0)
	}
}

// killLauncher runs a job by a launcher in a process of its own, and kills that after a moment.
func killLauncher(t *testing.T, j job, moment time.Duration) {
	t.Helper()
	running, started := pids{}, make(chan struct{})
	cmd := launchApart(t, j, launched{Workers: j.Workers, MinWorkers: j.MinWorkers, MaxRestarts: j.MaxRestarts}, func(line string) {
		if len(running) < j.Workers {
			if running.hear(line); len(running) == j.Workers {
				close(started)
			}
		}
	})
	<-started
	time.Sleep(moment)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	_ = cmd.Wait()
	mustEnd(t, running, killed)
}

// mustEnd fails if workers run 5 s after their launcher was killed.
func mustEnd(t *testing.T, running pids, killed time.Time) {
	t.Helper()
	for _, pid := range running {
		for {
			status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
			if err != nil || strings.Contains(string(status), ") Z ") {
				break
			}
			if time.Since(killed) > 5*time.Second {
				t.Fatalf("worker %d runs 5 s after its launcher was killed", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}
