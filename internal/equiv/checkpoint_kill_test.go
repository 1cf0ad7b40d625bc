// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"bufio"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/state"
)

var kills = flag.Int("kills", 6, "how often workers are killed while they save")

// killedSteps is how many steps a job has that is killed again and again.
const killedSteps = 60

// Workers are killed by SIGKILL at random instants while they save, again and again. Whatever is listed then loads, and has the bits that an
// undisturbed run has at that step; the job goes on from there.
func TestKillsWhileSavingLeaveCheckpointsThatLoad(t *testing.T) {
	w := workers{num: 2, devices: 1}
	folder := t.TempDir()
	undisturbed, dir := filepath.Join(folder, "undisturbed"), filepath.Join(folder, "killed")
	run := func(name, to string, kill func()) { // all workers, until they end
		var all sync.WaitGroup
		var killed atomic.Bool
		failures := make([]string, w.num)
		meeting, err := os.MkdirTemp(folder, "job")
		if err != nil {
			t.Fatal(err)
		}
		for i := range w.num {
			cmd := w.command(t, meeting, name, i)
			cmd.Env = append(cmd.Env, savedVariable+"="+to)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				lines := bufio.NewReader(out)
				line, _ := lines.ReadString('\n')
				rest := make(chan string, 1)
				go func() {
					b, _ := io.ReadAll(lines)
					rest <- string(b)
				}()
				if kill != nil && line == "saving\n" {
					kill()
					killed.Store(true)
					_ = cmd.Process.Kill()
				}
				text := line + <-rest
				if err := cmd.Wait(); err != nil {
					failures[i] = fmt.Sprintf("worker %d: %v\n%s", i, err, text)
				}
			})
		}
		all.Wait()
		if text := strings.Join(failures, ""); text != "" && !killed.Load() {
			t.Fatal(text)
		}
	}
	run("saving at every step", undisturbed, nil)
	want := map[int64]string{}
	for _, c := range listed(t, undisturbed) {
		want[c.Manifest.Step] = contents(t, undisturbed, c.Name)
	}
	if len(want) != killedSteps {
		t.Fatalf("the undisturbed run has %d checkpoints", len(want))
	}
	r := rand.New(rand.NewSource(1))
	var mu sync.Mutex
	checked, unfinished, jobs := 0, 0, 1
	for range *kills {
		apart := time.Duration(r.Int63n(int64(20 * time.Millisecond))) // between the deaths of the two
		after := time.Duration(r.Int63n(int64(120 * time.Millisecond)))
		first := true
		run("saving while it trains", dir, func() {
			mu.Lock()
			pause := after
			if !first {
				pause += apart
			}
			first = false
			mu.Unlock()
			time.Sleep(pause)
		})
		newest := int64(0)
		for _, c := range listed(t, dir) {
			if got := contents(t, dir, c.Name); got != want[c.Manifest.Step] {
				t.Fatalf("%s is not what an undisturbed run has at this step", c.Name)
			}
			checked, newest = checked+1, c.Manifest.Step
		}
		names, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) > len(listed(t, dir)) {
			unfinished++
		}
		if newest == killedSteps { // begin anew
			jobs++
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	run("saving while it trains", dir, nil)
	last := listed(t, dir)
	if n := len(last); n == 0 || last[n-1].Manifest.Step != killedSteps || contents(t, dir, last[n-1].Name) != want[killedSteps] {
		t.Errorf("the last run ended with %v", last)
	}
	if checked == 0 {
		t.Error("nothing was saved before a kill")
	}
	t.Logf("%d kills in %d jobs: %d checkpoints loaded, %d kills left one unfinished", *kills, jobs, checked, unfinished)
}

const savedVariable = "EPLTEST_CHECKPOINTS" // the folder of checkpoints

func init() {
	for name, every := range map[string]bool{"saving at every step": true, "saving while it trains": false} {
		parts[name] = func(w *part) error {
			env, err := w.init(map[string]any{"zero.level": "v1"})
			if err != nil {
				return err
			}
			defer env.Close()
			m := Model{"mlp", MLP(2, 256, false), Models()[0].Loss, Regression(8, 8)}
			run := &Run{Store: newStore()}
			b := env.Checkpoints(run.Store).Dir(os.Getenv(savedVariable)).Keep(3)
			if every {
				b.Keep(-1)
			} else {
				b.EverySteps(1)
			}
			saver, err := b.Done()
			if err != nil {
				return err
			}
			loop := train.NewLoop(train.NewTrainer(env.Backend(), run.Store, m.Build, m.Loss, epl.Optimizer(adam()), nil, nil))
			say := sync.OnceFunc(func() { fmt.Println("saving") })
			loop.OnStep("save", 100, func(l *train.Loop, metrics []*tensors.Tensor) error {
				defer say()
				if every {
					return saver.Save()
				}
				return saver.OnStep(l, metrics)
			})
			if _, err := loop.RunToGlobalStep(env.Dataset(Dataset{m.Batch}), killedSteps); err != nil {
				return err
			}
			return saver.Save()
		}
	}
}

// listed are the checkpoints of a folder; none of them is damaged.
func listed(t *testing.T, dir string) []checkpoint.Listed {
	t.Helper()
	all, _, damaged, err := checkpoint.List(checkpoint.OS, dir)
	if err != nil || len(damaged) > 0 {
		t.Fatal(err, damaged)
	}
	return all
}

// contents is a hash of all variables of a checkpoint, which must load.
func contents(t *testing.T, dir, name string) string {
	t.Helper()
	c, err := checkpoint.Open(checkpoint.OS, filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Verify(0, 1); err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for _, path := range slices.Sorted(slices.Values(c.Paths())) {
		shape, _ := c.Shape(path)
		b := make([]byte, state.Bytes(shape.DType, shape.Size()))
		if err := c.Read(path, state.Whole(shape.Dimensions), b); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(h, path, shape)
		h.Write(b)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
