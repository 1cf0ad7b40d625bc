// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command checkpoint measures what saving a checkpoint costs a step, and what loading it takes of time, disk and memory on each worker.
//
//	go run ./bench/checkpoint                       # 1 GB of state on one device
//	go run ./bench/checkpoint -devices 2 -zero v1
//	go run ./bench/checkpoint -rounds 1 -batch 8    # mostly what loading takes
//	go run ./bench/checkpoint -copies 1             # copies in memory (recovery.copies), by one worker
//
// Steps with and without a save alternate. A save stalls training by the call of OnStep, and by what reading and writing the state take from devices that have the
// same cores. Both together are printed as a share of one step: of the step in which the save begins, and of all steps from its beginning until it is on disk. A
// step without a save is the median of the two before and the two after. On a machine that others use, too, the time that this process computed varies less.
//
// Whoever loads reads from the disk: the page cache forgets the files first, where the system can do that. Workers that load together have one disk, and the cores of one machine; so what one
// of them reads is read by one process alone, too.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/easyparallel/epl/internal/procmem"
	"github.com/easyparallel/epl/launch"
	_ "github.com/easyparallel/epl/xla" // -inner xla:cuda
)

// job is what is measured.
type job struct {
	State   int64 // bytes of variables
	Batch   int   // samples of a device
	Devices int
	Zero    string
	Inner   string // of the job that saves
	Rounds  int
	Dir     string
	Workers []int // that load, each number in a run of its own
	Loads   bool  // this process is one of them
	Alone   int   // this process reads what one of so many would, by itself; 0: it does not
	Copies  int   // workers that copy to memory, instead; 0: none
	Copied  bool  // this process is one of them
}

func main() {
	var j job
	flag.Int64Var(&j.State, "state", 1<<30, "bytes of weights and optimizer state")
	flag.IntVar(&j.Batch, "batch", 640, "samples of a device and step")
	flag.IntVar(&j.Devices, "devices", 1, "devices of the job that saves")
	flag.StringVar(&j.Zero, "zero", "", "zero.level of the job that saves")
	flag.StringVar(&j.Inner, "inner", "", "backend of the job that saves: xla:cuda for GPUs; default: the CPU engine")
	flag.IntVar(&j.Rounds, "rounds", 3, "saves that are measured")
	flag.StringVar(&j.Dir, "dir", "", "folder of checkpoints; default: a temporary one")
	flag.BoolVar(&j.Loads, "load", false, "only load, as one of the workers that the command starts")
	flag.IntVar(&j.Alone, "alone", 0, "only read what one of so many workers would, as the command starts itself")
	flag.IntVar(&j.Copies, "copies", 0, "measure copies in memory instead, made by so many workers")
	flag.BoolVar(&j.Copied, "copy", false, "only copy, as one of the workers that the command starts")
	if len(os.Args) > 1 && os.Args[1] == "--guard" { // of the launcher of these
		launch.Guard(os.Stdin)
		return
	}
	loads := flag.Bool("loads", true, "let 1, 2 and 4 workers load the checkpoint")
	flag.Parse()
	if *loads {
		j.Workers = []int{1, 2, 4}
	}
	if err := j.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (j job) run() error {
	switch {
	case j.Loads:
		return j.load()
	case j.Alone > 0:
		return j.alone()
	case j.Copied:
		return j.copy()
	case j.Copies > 0:
		return j.copies()
	}
	if j.Dir == "" {
		dir, err := os.MkdirTemp("", "checkpoints")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		j.Dir = dir
	}
	if err := j.save(); err != nil || len(j.Workers) == 0 {
		return err
	}
	if err := j.loads(); err != nil {
		return err
	}
	return j.shares()
}

// spent is what a step took.
type spent struct{ time, cpu time.Duration }

// round is a save, and the steps around it.
type round struct {
	before []spent       // without a save
	begun  time.Duration // that OnStep took
	during []spent       // from its beginning until it was on disk
	saved  time.Duration // when that was
	plain  spent         // without a save
}

// first is how much longer the step took in which the save began, as a share of a step.
func (r round) first() float64 {
	return (r.begun+r.during[0].time).Seconds()/r.plain.time.Seconds() - 1
}

// all is how much longer the steps of the save took together, and how much more they computed, as shares of one step.
func (r round) all() (time, cpu float64) {
	time = r.begun.Seconds() / r.plain.time.Seconds()
	for _, d := range r.during {
		time += d.time.Seconds()/r.plain.time.Seconds() - 1
		cpu += d.cpu.Seconds()/r.plain.cpu.Seconds() - 1
	}
	return time, cpu
}

// save trains and saves, and prints what that cost.
func (j job) save() error {
	t, err := j.trainer(nil)
	if err != nil {
		return err
	}
	defer t.env.Close()
	step := func(all *[]spent) error {
		start, cpu := time.Now(), procmem.CPU()
		_, err := t.loop.RunSteps(t.data, 1)
		*all = append(*all, spent{time.Since(start), procmem.CPU() - cpu})
		return err
	}
	steps := func(n int, all *[]spent) error {
		for range n {
			if err := step(all); err != nil {
				return err
			}
		}
		return nil
	}
	if err := steps(2, &[]spent{}); err != nil { // the first compiles
		return err
	}
	rounds := make([]round, j.Rounds)
	for i := range rounds {
		r := &rounds[i]
		if err := steps(2, &r.before); err != nil {
			return err
		}
		start := time.Now()
		if err := t.saver.OnStep(t.loop, nil); err != nil {
			return err
		}
		r.begun = time.Since(start)
		over := make(chan error, 1)
		go func() {
			err := t.saver.Wait()
			r.saved = time.Since(start)
			over <- err
		}()
		for done := false; !done; {
			if err := step(&r.during); err != nil {
				return err
			}
			select {
			case err := <-over:
				if done = true; err != nil {
					return err
				}
			default:
			}
		}
	}
	var after []spent
	if err := steps(2, &after); err != nil {
		return err
	}
	for i := range slices.Backward(rounds) {
		r := &rounds[i]
		around := slices.Concat(r.before, after)
		r.plain.time = median(each(around, func(s spent) time.Duration { return s.time }))
		r.plain.cpu = median(each(around, func(s spent) time.Duration { return s.cpu }))
		after = r.before
	}
	print(t.bytes, rounds)
	return nil
}

// print prints the table of the saves.
func print(bytes int64, rounds []round) {
	fmt.Printf("%.2f GB of state\n\n", float64(bytes)/1e9)
	fmt.Println("| | step without a save | OnStep takes | step in which it begins | longer by | steps until it is on disk | longer by, of one step | computed more, of one step | on disk after |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for i, r := range rounds {
		all, cpu := r.all()
		fmt.Printf("| save %d | %.2f s | %.1f ms | %.2f s | %.1f %% | %d | %.1f %% | %.1f %% | %.1f s |\n", i+1, r.plain.time.Seconds(), 1000*r.begun.Seconds(), r.during[0].time.Seconds(),
			100*r.first(), len(r.during), 100*all, 100*cpu, r.saved.Seconds())
	}
	fmt.Printf("\nmedian: the step in which a save begins takes %.1f %% longer; all steps until it is on disk take %.1f %% of one step longer, and compute %.1f %% more\n",
		100*median(each(rounds, round.first)), 100*median(each(rounds, func(r round) float64 { t, _ := r.all(); return t })), 100*median(each(rounds, func(r round) float64 { _, c := r.all(); return c })))
}

// each is what a function gives for each of a list.
func each[S, T any](list []S, of func(S) T) (all []T) {
	for _, x := range list {
		all = append(all, of(x))
	}
	return all
}

// median is that of some numbers.
func median[T float64 | time.Duration](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
