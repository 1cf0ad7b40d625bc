// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt/pjrttest"
	"github.com/easyparallel/epl/trace"
)

var location = regexp.MustCompile(`loc\("(\d+)"\)`)

// The timeline of GPUs has their kernels, with lines of the model: here a kernel for each operation of the modules, on the second of two GPUs.
func TestTheTimelineOfGPUsHasTheirKernels(t *testing.T) {
	var mu sync.Mutex
	var texts []string
	instructions := func(text string) (all []pjrttest.Instruction) {
		for i, m := range location.FindAllStringSubmatch(text, -1) {
			all = append(all, pjrttest.Instruction{Name: fmt.Sprint("x.", i), Opcode: "add", Location: m[1], Dims: []uint64{2}})
		}
		return all
	}
	f := pjrttest.New(t, pjrttest.Options{Devices: 2, Optimized: func(text string) []byte { return pjrttest.Module(instructions(text)...) }, Profile: func() []byte {
		var kernels []pjrttest.Kernel
		mu.Lock()
		defer mu.Unlock()
		for _, text := range texts {
			for _, x := range instructions(text) {
				kernels = append(kernels, pjrttest.Kernel{Device: 1, Name: "add", Module: text, Op: x.Name, Start: time.Now(), Took: time.Microsecond})
			}
		}
		return pjrttest.Space(kernels...)
	}})
	exec.Register("xla", func(string) (exec.Kind, error) {
		return xlatest.Kind(t, f, xla.Options{Compiling: func(_ *ir.Segment, _ []bool, text string) {
			mu.Lock()
			defer mu.Unlock()
			texts = append(texts, text)
		}}), nil
	})
	file := filepath.Join(t.TempDir(), "trace.json")
	t.Setenv(epl.EnvTrace, file)
	x, _ := find("2 processes: data parallelism")
	if _, err := x.train(part{Backend: "xla:fake", Timeout: time.Minute}, epl.WithLocalDevices(2)); err != nil {
		t.Fatal(err)
	}
	r, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	step, err := trace.Read(r)
	if err != nil {
		t.Fatal(err)
	}
	tasks, lines := map[string]int{}, 0
	for _, e := range step.Events() {
		if e.Kind != trace.Kernel {
			continue
		}
		if tasks[e.Task.Kind]++; e.Device != 1 {
			t.Errorf("a kernel of device %d", e.Device)
		}
		if len(e.Sites) > 0 && strings.HasPrefix(e.Sites[0].Line, "nccl/") {
			lines++
		}
	}
	if tasks[trace.Forward] == 0 || tasks[trace.Backward] == 0 || tasks[trace.Apply] == 0 || lines == 0 {
		t.Errorf("kernels by task: %v; %d have lines of the program", tasks, lines)
	}
}
