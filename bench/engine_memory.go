// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/easyparallel/epl/internal/procmem"
)

// envModel makes a process train a model of the engine's rows: a step for every line it reads. It answers with the seconds that
// the step took, or, for the line "memory", with the most bytes that it had before the model was built, and until now.
const envModel = "EPL_BENCH_MODEL"

func beStepper(name string) error {
	before := procmem.Peak()
	for _, m := range engineModels() {
		if m.name != name {
			continue
		}
		s, err := m.onEPL("cpu")
		if err != nil {
			return err
		}
		defer s.close()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if lines.Text() == "memory" {
				fmt.Println(before, procmem.Peak())
				continue
			}
			d, err := s.once()
			if err != nil {
				return err
			}
			fmt.Println(d.Seconds())
		}
		return nil
	}
	return fmt.Errorf("there is no model %q", name)
}

// engineMemoryRows compare the most memory that a process takes to train the GPT of width 256, which includes its program and
// libraries, and what building and training the model added to that.
func engineMemoryRows() []Row {
	measure := func(of func(before, most float64) float64) func(int) (Result, error) {
		return func(runs int) (r Result, err error) {
			self, err := os.Executable()
			if err != nil {
				return r, err
			}
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), envModel+"=gpt-256")
			r = Result{Unit: "MB", Target: 1}
			if r.Ours, err = memory(cmd, runs, of); err != nil {
				return r, err
			}
			cmd, err = torchCommand("gpt", 256, 8)
			if m, ok := err.(missing); ok {
				r.Skipped = string(m)
				return r, nil
			} else if err != nil {
				return r, err
			}
			r.Theirs, err = memory(cmd, runs, of)
			r.Ratio = r.Theirs / r.Ours
			r.Low, r.High = r.Ratio, r.Ratio
			return r, err
		}
	}
	return []Row{
		{Name: "engine/memory/gpt-256/process", Peer: torchPeer, Pairs: 10, Custom: measure(func(_, most float64) float64 { return most })},
		{Name: "engine/memory/gpt-256/training", Peer: torchPeer, Pairs: 10, Custom: measure(func(before, most float64) float64 { return most - before })},
	}
}

// memory is what a process has after some steps, in MB.
func memory(cmd *exec.Cmd, steps int, of func(before, most float64) float64) (float64, error) {
	p, err := start(cmd)
	if err != nil {
		return 0, err
	}
	defer p.close()
	for range steps {
		if _, err := p.ask("step"); err != nil {
			return 0, err
		}
	}
	line, err := p.ask("memory")
	if err != nil {
		return 0, err
	}
	var before, most float64
	_, err = fmt.Sscan(line, &before, &most)
	return of(before, most) / 1e6, err
}

// engineAllocationRows compare what a step allocates, which is work for the garbage collector.
func engineAllocationRows() (rows []Row) {
	for _, m := range engineModels() {
		if m.name != "gpt-256" && m.name != "tiny-8" {
			continue
		}
		for _, x := range []struct {
			name, unit string
			of         func(before, after *runtime.MemStats) float64
		}{
			{"bytes", "KB", func(a, b *runtime.MemStats) float64 { return float64(b.TotalAlloc-a.TotalAlloc) / 1e3 }},
			{"count", "allocations", func(a, b *runtime.MemStats) float64 { return float64(b.Mallocs - a.Mallocs) }},
		} {
			rows = append(rows, Row{Name: "engine/allocations/" + m.name + "/" + x.name, Peer: plainPeer, Pairs: 10, Custom: func(runs int) (Result, error) {
				ours, err := allocated(func() (side, error) { return m.onEPL("cpu") }, runs, x.of)
				if err != nil {
					return Result{}, err
				}
				theirs, err := allocated(m.onPlain, runs, x.of)
				ratio := theirs / ours
				return Result{Unit: x.unit, Ours: ours, Theirs: theirs, Ratio: ratio, Low: ratio, High: ratio}, err
			}})
		}
	}
	return rows
}

// allocated is what a step allocates, with the copy of its batch.
func allocated(begin func() (side, error), steps int, of func(before, after *runtime.MemStats) float64) (float64, error) {
	s, err := begin()
	if err != nil {
		return 0, err
	}
	defer s.close()
	var before, after runtime.MemStats
	for i := range steps + 3 {
		if i == 3 {
			runtime.ReadMemStats(&before)
		}
		if _, err := s.once(); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return of(&before, &after) / float64(steps), nil
}
