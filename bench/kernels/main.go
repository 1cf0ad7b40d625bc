// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command kernels compares what the CPU engine takes for programs of one device with what the profile of this machine predicts:
//
//	epl calibrate
//	EPL_DUMP=dump go run ./examples/bert          # writes programs after every pass; the last one is what runs
//	go run ./bench/kernels dump/*-apply-groups.txt
//
// A program runs some times, on inputs that were made up. Of each step of the engine the fastest tenth of the runs counts, as in epl calibrate, and what a program
// takes is their sum: on a machine that is busy, too. With -by it says what each kind of step takes.
package main

import (
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend" // the engine runs on it what it does not know

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

var (
	cores   = flag.Int("cores", 0, "cores of the device; 0: all of the profile")
	runs    = flag.Int("runs", 20, "how often a program runs")
	profile = flag.String("profile", cost.This, "the profile that predicts")
	by      = flag.Bool("by", false, "say what each kind of step takes")
)

func main() {
	flag.Parse()
	p, err := cost.Find(*profile)
	if err != nil {
		log.Fatal(err)
	}
	if *cores == 0 {
		*cores = max(p.Cores, 1)
	}
	p, faster := p.On(*cores)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "program\tmeasured ms\tpredicted ms\tpredicted/measured")
	var off []float64
	for _, file := range flag.Args() {
		c, err := compare(file, p, faster)
		if err != nil {
			log.Fatalf("%s: %+v", file, err)
		}
		c.print(w, file)
		off = append(off, math.Abs(c.predicted.Seconds()/c.measured.Seconds()-1))
	}
	if len(off) > 0 {
		slices.Sort(off)
		fmt.Fprintf(w, "median error\t\t\t%.0f %%\n", 100*off[len(off)/2])
	}
	_ = w.Flush()
}

// comparison is of one program.
type comparison struct {
	measured, predicted time.Duration
	steps, kernels      map[string]total
}

// total is of steps of the engine of a kind, or kernels of a family.
type total struct {
	n             int
	time          time.Duration
	read, written int64
}

func (t total) plus(d time.Duration, read, written int64) total {
	return total{t.n + 1, t.time + d, t.read + read, t.written + written}
}

func (c *comparison) print(w *tabwriter.Writer, name string) {
	ms := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
	fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.2f\n", name, ms(c.measured), ms(c.predicted), c.predicted.Seconds()/c.measured.Seconds())
	if !*by {
		return
	}
	line := func(what string, t total, column string) {
		fmt.Fprintf(w, "  %d %s, reads %.1f MB, writes %.1f MB\t"+column+"\n", t.n, what, float64(t.read)/1e6, float64(t.written)/1e6, ms(t.time))
	}
	for _, kind := range emit.Kinds {
		if t := c.steps[kind]; t.n > 0 {
			line("steps: "+kind, t, "%.3f")
		}
	}
	for _, family := range cost.Families {
		if t := c.kernels[family]; t.n > 0 {
			line("kernels: "+family, t, "\t%.3f")
		}
	}
}

// compare runs a program and predicts it.
func compare(file string, p *cost.Profile, faster float64) (*comparison, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	program, err := ir.Parse(string(text))
	if err != nil {
		return nil, err
	}
	s := emit.Whole(program)
	c := &comparison{predicted: time.Duration(float64(p.Ops(s)) / faster), steps: map[string]total{}, kernels: map[string]total{}}
	for _, k := range cost.Kernels(s, p.Fuses) {
		c.kernels[k.Family] = c.kernels[k.Family].plus(time.Duration(float64(p.Kernel(k))/faster), k.Read, k.Written)
	}
	steps, times, err := run(s)
	for i, all := range times {
		slices.Sort(all)
		d := all[len(all)/10]
		c.measured += d
		c.steps[steps[i].Kind] = c.steps[steps[i].Kind].plus(d, steps[i].Read, steps[i].Written)
	}
	return c, err
}

// run runs a segment, and returns its steps and how long each took in each run.
func run(s *ir.Segment) (steps []emit.Step, times [][]time.Duration, err error) {
	op, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		return nil, nil, err
	}
	b := cpu.New(op, *cores)
	defer b.Finalize()
	plan, err := b.Plan(s)
	if err != nil {
		return nil, nil, err
	}
	executable, err := emit.Segment(b, s)
	if err != nil {
		return nil, nil, err
	}
	inputs, donate := make([]compute.Buffer, len(s.Inputs)), make([]bool, len(s.Inputs))
	for i, v := range s.Inputs {
		in, flat, err := b.NewSharedBuffer(0, v.Shape)
		if err != nil {
			return nil, nil, err
		}
		if x, ok := flat.([]float32); ok {
			for i := range x {
				x[i] = float32(i%17)/17 + 0.01
			}
		}
		inputs[i] = in
	}
	for _, i := range plan.Over {
		if i >= 0 {
			donate[i] = true
		}
	}
	for range *runs {
		n := 0
		outputs, err := executable.(emit.Watched).ExecuteWatched(inputs, donate, 0, func(x emit.Step, start, end time.Time) {
			if n == len(steps) {
				steps, times = append(steps, x), append(times, nil)
			}
			times[n] = append(times[n], end.Sub(start))
			n++
		})
		if err != nil {
			return nil, nil, err
		}
		for i, out := range outputs { // a variable's new value is where the old one was
			if j := plan.Over[i]; j >= 0 {
				inputs[j] = out
			} else {
				_ = out.Finalize()
			}
		}
	}
	return steps, times, nil
}
