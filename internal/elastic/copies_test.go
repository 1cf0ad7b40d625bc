// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/launch"
)

// repeated is how many steps that were complete a job has taken again after its failures, at most at a time, and how often the workers were started.
func repeated(t *testing.T, said string) (most, generations int) {
	t.Helper()
	done, begun := 0, false
	first, again := "", false // the line of the first worker's process; a launcher shows the last lines of a worker again
	for line := range strings.SplitSeq(said, "\n") {
		var n int
		switch {
		case strings.HasPrefix(line, "[0] pid ") && line != first:
			generations++
			first, begun, again = line, true, false
		case strings.Contains(line, "the last lines of worker"):
			again = true
		case again:
		case strings.HasPrefix(line, "[0] done "):
			fmt.Sscanf(line, "[0] done %d", &done)
		case begun && strings.HasPrefix(line, "[0] step "):
			fmt.Sscanf(line, "[0] step %d", &n)
			most, begun = max(most, done+1-n), false
		}
	}
	return most, generations
}

// held are the files of memory for copies that this process, as a launcher, holds.
func held() (names []string) {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil && strings.Contains(name, "epl-copy") {
			names = append(names, name)
		}
	}
	return names
}

// The kill loop, without a checkpoint on disk until the end: every step that was complete counts, but for the last one before a kill.
func TestKillLoopWithCopiesInMemory(t *testing.T) {
	killLoop(t, 2, func(w *work) { w.Copies = true }, func(t *testing.T, said string) string {
		most, generations := repeated(t, said)
		if most > 1 {
			t.Errorf("%d complete steps were taken again", most)
		}
		if names := held(); len(names) > 0 {
			t.Errorf("the job is over, and there is memory left: %v", names)
		}
		return fmt.Sprintf("; %d generations, at most %d steps again", generations, most)
	})
}

// Workers are killed at a step that all have finished: the job goes on with the next one.
func TestAJobGoesOnFromCopiesInMemoryWithoutAFolder(t *testing.T) {
	plain := job{work: work{Steps: 16, Copies: true}, Options: launch.Options{Workers: 3, MinWorkers: 3, MaxRestarts: 2}}
	status, said := plain.run(t)
	if status != 0 {
		t.Fatal(said)
	}
	want := curve(t, said, 16)
	j := plain
	j.Pause = pause
	j.hear = killAt(9, 0, 1, 2) // all of them
	status, said = j.run(t)
	for _, text := range []string{"goes on from the copies in memory, of step ", "epl: training goes on from the copies in memory of step "} {
		if status != 0 || !strings.Contains(said, text) {
			t.Fatalf("status %d; nobody said %q:\n%s", status, text, said)
		}
	}
	if most, generations := repeated(t, said); most > 1 || generations != 2 {
		t.Errorf("%d steps were taken again in %d generations:\n%s", most, generations, said)
	}
	if got := curve(t, said, 16); !slices.Equal(got, want) {
		t.Errorf("the losses are %v, not %v", got, want)
	}
}

// A worker that is out is taken in after the next step that was copied, and copies are put together for another number of workers.
func TestCopiesAreLoadedByFewerWorkersAndByMore(t *testing.T) {
	const steps = 60
	plain := job{work: work{Dir: t.TempDir(), Steps: steps, Every: 1000}, Options: launch.Options{Workers: 3}}
	if status, said := plain.run(t); status != 0 {
		t.Fatal(said)
	}
	j := job{work: work{Dir: t.TempDir(), Steps: steps, Every: 1000, Copies: true, Pause: slowly * 2 * pause},
		Options: launch.Options{Workers: 3, MinWorkers: 2, MaxRestarts: 2, RestartDelay: slowly * time.Second}}
	j.hear = killAt(12, 1)
	status, said := j.run(t)
	if status != 0 || !strings.Contains(said, "of 2 workers, ended after step") {
		t.Fatalf("status %d:\n%s", status, said)
	}
	if most, generations := repeated(t, said); most > 1 || generations != 3 {
		t.Errorf("%d steps were taken again in %d generations:\n%s", most, generations, said)
	}
	same(t, weights(t, plain.Dir, steps), weights(t, j.Dir, steps), 1e-5)
}

// Launchers of two machines, which are one, hold what only the workers of the other have, too: one of them is killed, and when it is started again the job goes on from the last step.
func TestCopiesOutliveALauncher(t *testing.T) {
	for _, name := range []string{"pipeline", "ZeRO v2"} {
		t.Run(name, func(t *testing.T) {
			const steps = 30
			j := plans[name]
			j.work.Steps, j.work.Every, j.work.Dir = steps, 1000, t.TempDir()
			if status, said := j.run(t); status != 0 {
				t.Fatal(said)
			}
			want := weights(t, j.Dir, steps)
			j.work.Dir, j.work.Copies, j.work.Pause = t.TempDir(), true, pause
			j.MinWorkers, j.MaxRestarts, j.MachineList, j.Port = j.Workers, 3, "localhost,localhost", freePort(t)
			o := launched{Workers: j.Workers, MinWorkers: j.Workers, MaxRestarts: 3, MachineList: j.MachineList, MachineRank: 1, Port: j.Port, DevicesPerWorker: j.DevicesPerWorker}
			second := launchApart(t, j, o, nil)
			again := make(chan *exec.Cmd, 1)
			killed := false
			j.hear = func(line string) {
				if strings.HasPrefix(line, "[0] done 12") && !killed {
					killed = true
					go func() {
						_ = second.Process.Kill()
						_ = second.Wait()
						again <- launchApart(t, j, o, nil)
					}()
				}
			}
			status, said := j.run(t)
			if status != 0 {
				t.Fatalf("status %d:\n%s", status, said)
			}
			same(t, want, weights(t, j.Dir, steps), 0)
			if most, generations := repeated(t, said); most > 1 || generations < 2 {
				t.Errorf("%d steps were taken again, in %d generations:\n%s", most, generations, said)
			}
			if err := (<-again).Wait(); err != nil {
				t.Errorf("the second launcher does not end as the job does: %v", err)
			}
		})
	}
}

// Launchers that ssh has started stay when a generation ends, and hold the copies of its workers.
func TestCopiesOutliveAGenerationBySSH(t *testing.T) {
	const steps = 30
	j := plans["ZeRO v2"]
	j.work.Steps, j.work.Every, j.work.Dir = steps, 1000, t.TempDir()
	if status, said := j.run(t); status != 0 {
		t.Fatal(said)
	}
	want := weights(t, j.Dir, steps)
	ssh := filepath.Join(t.TempDir(), "ssh")
	if err := os.WriteFile(ssh, []byte("#!/bin/sh\necho $1 >>$0.hosts\nshift\nexec sh -c \"$*\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	j.work.Dir, j.work.Copies, j.work.Pause = t.TempDir(), true, pause
	text, err := json.Marshal(j.work)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(workVariable, string(text)) // as on the other machines
	j.MinWorkers, j.MaxRestarts, j.Hosts, j.Port, j.SSH = j.Workers, 3, "127.0.0.1,localhost", freePort(t), []string{ssh}
	j.hear = killAt(12, 1)
	status, said := j.run(t)
	if status != 0 {
		t.Fatalf("status %d:\n%s", status, said)
	}
	same(t, want, weights(t, j.Dir, steps), 0)
	if most, generations := repeated(t, said); most > 1 || generations != 2 {
		t.Errorf("%d steps were taken again, in %d generations:\n%s", most, generations, said)
	}
	if hosts, err := os.ReadFile(ssh + ".hosts"); err != nil || strings.Count(string(hosts), "\n") != 2 {
		t.Errorf("ssh was called for %q, %v", hosts, err)
	}
}
