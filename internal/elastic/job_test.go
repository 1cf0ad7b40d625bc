// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/launch"
	"github.com/easyparallel/epl/state"
)

// output collects what a launcher prints, and hands each line to a listener.
type output struct {
	mu   sync.Mutex
	text string
	hear func(line string)
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := strings.LastIndexByte(o.text, '\n') + 1
	o.text += string(p)
	lines := strings.Split(o.text[before:], "\n")
	for _, line := range lines[:len(lines)-1] {
		if o.hear != nil {
			o.hear(line)
		}
	}
	return len(p), nil
}

// job is a job of several workers.
type job struct {
	work
	launch.Options
	hear func(line string) // what is called with every line
}

// run runs a job to its end.
func (j job) run(t *testing.T) (status int, said string) {
	t.Helper()
	text, err := json.Marshal(j.work)
	if err != nil {
		t.Fatal(err)
	}
	out := &output{hear: j.hear}
	j.Options.Command, j.Options.Stdout, j.Options.Stderr = os.Args[:1], out, out
	j.Environ = append(clean(), workVariable+"="+string(text), tokenVariable)
	if status, err = launch.Run(t.Context(), j.Options); err != nil {
		t.Fatalf("%v\n%s", err, out.text)
	}
	return status, out.text
}

// clean is this environment without what would change a job.
func clean() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "EPL_") || strings.HasPrefix(v, "GOMAXPROCS=")
	})
}

// weights are those of the newest checkpoint of a folder, which must be of that step.
func weights(t *testing.T, dir string, step int) map[string][]float32 {
	t.Helper()
	all, _, damaged, err := checkpoint.List(checkpoint.OS, dir)
	if err != nil || len(all) == 0 || len(damaged) > 0 {
		t.Fatalf("%d checkpoints: %v, %v", len(all), err, damaged)
	}
	c, err := checkpoint.Open(checkpoint.OS, filepath.Join(dir, all[len(all)-1].Name))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Manifest.Step != int64(step) {
		t.Fatalf("the last checkpoint is of step %d, not %d", c.Manifest.Step, step)
	}
	values := map[string][]float32{}
	for _, path := range c.Paths() {
		if !strings.HasSuffix(path, "/weights") { // a trainer that takes no step has no learning rate
			continue
		}
		shape, _ := c.Shape(path)
		b := make([]byte, shape.ByteSize())
		if err := c.Read(path, state.Whole(shape.Dimensions), b); err != nil {
			t.Fatal(err)
		}
		for len(b) > 0 {
			values[path], b = append(values[path], math.Float32frombits(binary.LittleEndian.Uint32(b))), b[4:]
		}
	}
	return values
}

// same fails if weights differ by more than a tolerance.
func same(t *testing.T, want, got map[string][]float32, tolerance float64) {
	t.Helper()
	if len(want) == 0 || len(want) != len(got) {
		t.Fatalf("the variables are %v, not %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	worst := 0.0
	for path := range want {
		for i, w := range want[path] {
			worst = max(worst, math.Abs(float64(w-got[path][i])))
		}
	}
	if !(worst <= tolerance) {
		t.Errorf("weights differ by %v from those of the undisturbed run", worst)
	}
}

// curve is the loss of each step, as it was printed last.
func curve(t *testing.T, said string, steps int) []float64 {
	t.Helper()
	losses := make([]float64, steps)
	for line := range strings.SplitSeq(said, "\n") {
		var step int
		var loss string
		if n, _ := fmt.Sscanf(line, "[0] step %d loss %s", &step, &loss); n == 2 && step <= steps {
			losses[step-1], _ = strconv.ParseFloat(loss, 64)
		}
	}
	if i := slices.Index(losses, 0); i >= 0 {
		t.Fatalf("step %d was not taken:\n%s", i+1, said)
	}
	return losses
}

// pids are the processes of the workers.
type pids map[int]int

// hear notes those that a line tells of.
func (p pids) hear(line string) {
	var worker, pid int
	if n, _ := fmt.Sscanf(line, "[%d] pid %d", &worker, &pid); n == 2 {
		p[worker] = pid
	}
}

// killAt kills workers when a step is over, once.
func killAt(step int, workers ...int) (hear func(line string)) {
	running, killed := pids{}, false
	return func(line string) {
		running.hear(line)
		if killed || !strings.HasPrefix(line, fmt.Sprintf("[0] step %d ", step)) {
			return
		}
		killed = true
		for _, w := range workers {
			syscall.Kill(running[w], syscall.SIGKILL)
		}
	}
}
