// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command predict compares what EPL predicts of training steps on this machine with what they take: several models, each run in several ways, on virtual devices and
// on workers.
//
//	go run ./bench/predict -out out/predict          # 6 minutes; do nothing else on the machine meanwhile
//	go run ./bench/predict -profile this -only gpt   # with the profile that epl calibrate wrote; only some rows
//
// For each model it calibrates, predicts every row (the plan, its simulation, its account of memory), and then trains them. Every row is a process, or several; those of a model take
// turns, so that all are disturbed alike. It prints a table as Markdown, how well predictions and measurements agree, and of each model what the planner chose
// against the best that was measured. With -out it is also written to files, with all times as JSON.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/cost/calibrate"
	"github.com/easyparallel/epl/plan"
)

type options struct {
	profile, only, out string
	rounds             int
	turn               time.Duration
	quantile           float64
}

func main() {
	var o options
	flag.StringVar(&o.profile, "profile", "", "the profile of this machine, by name or file; empty: calibrate now")
	flag.StringVar(&o.only, "only", "", "only rows that match this `regular expression`, such as 'gpt|mlp, DP'")
	flag.StringVar(&o.out, "out", "", "also write `name`.md and name.json")
	flag.IntVar(&o.rounds, "rounds", 6, "turns of each row")
	flag.DurationVar(&o.turn, "turn", 300*time.Millisecond, "how long a turn is, about")
	flag.Float64Var(&o.quantile, "quantile", 0.5, "the `part` of the steps that are faster than what counts: 0.5 is the median; less on a machine that is busy")
	child := flag.String("row", "", "what the command starts itself")
	flag.Parse()
	var err error
	if *child != "" {
		err = row(*child)
	} else {
		err = o.run(os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "predict: %+v\n", err)
		os.Exit(1)
	}
}

// row is what a process does that the command started.
func row(text string) error {
	var w way
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return err
	}
	if os.Getenv("EPL_PLAN_OUT") != "" {
		return w.predict()
	}
	return w.train(os.Stdin, os.Stdout)
}

// Row is a way, what was predicted of it, and what was measured.
type Row struct {
	way
	Replicas, MicroBatches, Samples int    // of a step
	Chosen                          string `json:",omitempty"` // what the planner chose
	// PredictedMS and MS are the time of a step, Low and High the range of most.
	PredictedMS, MS, Low, High float64
	// Turns are all that was measured. Speed is what this machine had of its processor in the turns that count, 1 being as when it was calibrated.
	Turns []turn
	Speed float64
	times []float64 // of the turns that count
	// Memory is in bytes, of the device that needs most; Process and PredictedProcess are those of the worker that does.
	PredictedMemory, Memory, PredictedProcess, Process int64
	plan                                               string // the fingerprint of what it makes of the program
}

func (o options) run(out io.Writer) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4.0fs %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	dir, err := os.MkdirTemp("", "predict")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var rows []*Row
	for _, w := range ways() {
		if only.MatchString(w.String()) {
			rows = append(rows, &Row{way: w})
		}
	}
	report := &report{Quantile: o.quantile}
	fails := func(r *Row, err error) {
		say("%s failed: %v", r, err)
		report.Failed = append(report.Failed, fmt.Sprintf("%s: %v", r, err))
	}
	// Each model has a profile of its own, which was measured just before: the machine may be slower some minutes later.
	for _, rows := range networksOf(rows) {
		m, err := o.machine(dir, say)
		if err != nil {
			return err
		}
		report.Source = m.profile.Source
		var predicted []*Row
		for i, r := range rows {
			say("predicts %d of %d: %s", i+1, len(rows), r)
			if err := r.predict(dir, i); err != nil {
				fails(r, err)
				continue
			}
			predicted = append(predicted, r)
		}
		report.Rows = append(report.Rows, m.measure(predicted, o, say, fails)...)
		m.probe.Close()
	}
	say("done")
	report.print(out)
	if o.out == "" {
		return nil
	}
	return report.write(o.out)
}

// machine is this one.
type machine struct {
	profile  *cost.Profile
	profiles string // the folder that has it
	probe    *calibrate.Probe
	speed    float64 // when it was probed last
}

// machine calibrates, or takes the profile that was given, and writes it where rows find it.
func (o options) machine(dir string, say func(string, ...any)) (*machine, error) {
	m := &machine{profiles: dir}
	var err error
	if o.profile != "" {
		m.profile, err = cost.Find(o.profile)
	} else {
		m.profile, err = calibrate.Machine(calibrate.Options{Progress: func(what string) { say("calibrates: %s", what) }})
	}
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(m.profile, "", "\t")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, cost.This+".json"), text, 0o644); err != nil {
		return nil, err
	}
	if m.probe, err = calibrate.NewProbe(""); err != nil {
		return nil, err
	}
	m.speed, err = m.probe.Speed(m.profile)
	return m, err
}

// predict makes the plan of a row in a process of its own.
func (r *Row) predict(dir string, number int) error {
	file := filepath.Join(dir, fmt.Sprintf("plan-%s-%d", r.Network, number))
	described := filepath.Join(dir, fmt.Sprintf("cluster-%d.yaml", number))
	if err := os.WriteFile(described, []byte(r.cluster()), 0o644); err != nil {
		return err
	}
	c, err := r.command(0, "EPL_PROFILES="+dir, "EPL_PLAN_OUT="+file, "EPL_PLAN_CLUSTER="+described, "EPL_PLAN_SET=")
	if err != nil {
		return err
	}
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	pl, err := plan.Read(file + ".json")
	if err != nil {
		return err
	}
	r.fill(pl)
	return nil
}

// fill notes what a plan predicts.
func (r *Row) fill(pl *plan.Plan) {
	r.Replicas, r.MicroBatches = pl.Replicas, pl.MicroBatches
	r.Samples = r.Replicas * r.MicroBatches * networks[r.Network].batch
	r.PredictedMS = pl.Costs.StepSeconds * 1000
	for _, d := range pl.Costs.Devices {
		r.PredictedMemory = max(r.PredictedMemory, d.Peak)
	}
	r.plan = pl.Result
	if r.Auto && len(pl.Ways) > 0 {
		r.Chosen = pl.Ways[0].String()
	}
}
