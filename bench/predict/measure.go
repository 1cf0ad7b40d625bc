// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/easyparallel/epl/bench/meeting"
	"github.com/easyparallel/epl/cluster"
)

// command is a process for a row: a worker of it.
func (r *Row) command(worker int, environment ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(r.way)
	if err != nil {
		return nil, err
	}
	c := exec.Command(self, "-row", string(text))
	c.Env = append(os.Environ(), environment...)
	if r.Workers > 1 {
		c.Env = append(c.Env, fmt.Sprintf("%s=%d", cluster.EnvNumWorkers, r.Workers), fmt.Sprintf("%s=%d", cluster.EnvWorkerIndex, worker),
			fmt.Sprintf("%s=%d", cluster.EnvDevicesPerWorker, r.Devices))
	}
	return c, nil
}

// running is a row that trains.
type running struct {
	row     *Row
	workers []*worker
	met     *meeting.Meeting // nil: there is one worker
	steps   int              // of a turn
	failed  bool
}

// worker is one of its processes.
type worker struct {
	command *exec.Cmd
	orders  io.WriteCloser
	answers *json.Decoder
}

// start starts the processes of a row, and notes what a step takes of memory.
func (r *Row) start(profiles string) (x *running, err error) {
	x = &running{row: r}
	defer func() {
		if err != nil {
			x.stop()
		}
	}()
	environment := []string{"EPL_PROFILES=" + profiles}
	if r.Workers > 1 {
		if x.met, err = meeting.New(r.Workers); err != nil {
			return nil, err
		}
		environment = append(environment, x.met.Address()...)
	}
	for i := range r.Workers {
		c, err := r.command(i, environment...)
		if err != nil {
			return nil, err
		}
		w := &worker{command: c}
		c.Stderr = os.Stderr
		if w.orders, err = c.StdinPipe(); err != nil {
			return nil, err
		}
		out, err := c.StdoutPipe()
		if err != nil {
			return nil, err
		}
		w.answers = json.NewDecoder(bufio.NewReader(out))
		if err := c.Start(); err != nil {
			return nil, err
		}
		x.workers = append(x.workers, w)
	}
	for _, w := range x.workers {
		var m measuredMemory
		if err := w.answers.Decode(&m); err != nil {
			return nil, fmt.Errorf("it does not train: %w", err)
		}
		r.Memory = max(r.Memory, slices.Max(m.Devices))
		if m.Process > r.Process {
			r.Process, r.PredictedProcess = m.Process, m.Account
		}
		if m.Plan != r.plan {
			return nil, fmt.Errorf("what runs is not what was predicted: plan %s, not %s", m.Plan, r.plan)
		}
	}
	return x, nil
}

// train does some steps, and returns their times in milliseconds: of each that of the slowest worker.
func (x *running) train(steps int) ([]float64, error) {
	for _, w := range x.workers {
		if _, err := fmt.Fprintln(w.orders, steps); err != nil {
			return nil, err
		}
	}
	slowest := make([]float64, steps)
	for _, w := range x.workers {
		var times []float64
		if err := w.answers.Decode(&times); err != nil {
			return nil, err
		}
		for i, t := range times {
			slowest[i] = max(slowest[i], t)
		}
	}
	return slowest, nil
}

// stop ends the processes: they have no more orders.
func (x *running) stop() {
	for _, w := range x.workers {
		_ = w.orders.Close()
	}
	for _, w := range x.workers {
		_ = w.command.Wait()
	}
	if x.met != nil {
		x.met.Close()
	}
}

// measure trains the rows of a network in turns, and returns those that did not fail.
func (m *machine) measure(rows []*Row, o options, say func(string, ...any), fails func(*Row, error)) (measured []*Row) {
	var all []*running
	defer func() {
		for _, x := range all {
			x.stop()
		}
	}()
	for i, r := range rows {
		say("starts %d of %d: %s", i+1, len(rows), r)
		x, err := r.start(m.profiles)
		if err != nil {
			fails(r, err)
			continue
		}
		times, err := x.train(2)
		if err != nil {
			x.stop()
			fails(r, err)
			continue
		}
		x.steps = max(2, int(float64(o.turn.Milliseconds())/slices.Min(times)))
		all = append(all, x)
	}
	for round := range o.rounds {
		if len(all) == 0 {
			break
		}
		say("%s: round %d of %d", rows[0].Network, round+1, o.rounds)
		for i := range all {
			x := all[(i+round)%len(all)]
			if x.failed {
				continue
			}
			t, err := m.turn(x)
			if err != nil {
				x.failed = true
				fails(x.row, err)
				continue
			}
			x.row.Turns = append(x.row.Turns, t)
		}
	}
	for _, x := range all {
		if r := x.row; !x.failed {
			r.settle()
			r.MS, r.Low, r.High = quantile(r.times, o.quantile), quantile(r.times, 0.1), quantile(r.times, 0.9)
			measured = append(measured, r)
		}
	}
	return measured
}

// turn is some steps of a row.
type turn struct {
	MS     []float64
	Stolen float64 // the part of the processor's time that other machines had meanwhile
	Speed  float64 // of the processor before and after, relative to the profile: other machines may use the same cores
}

// turn lets a row train.
func (m *machine) turn(x *running) (t turn, err error) {
	before := readClock()
	if t.MS, err = x.train(x.steps); err != nil {
		return t, err
	}
	t.Stolen = readClock().stolen(before)
	speed := m.speed
	if m.speed, err = m.probe.Speed(m.profile); err != nil {
		return t, err
	}
	t.Speed = (speed + m.speed) / 2
	return t, nil
}

// settle picks the turns that count: those in which the machine was most as it was when it was calibrated, about a third of all.
func (r *Row) settle() {
	off := func(t turn) float64 { return math.Abs(math.Log(t.had())) }
	slices.SortStableFunc(r.Turns, func(a, b turn) int { return cmp.Compare(off(a), off(b)) })
	var speeds []float64
	for i, t := range r.Turns {
		if i < (len(r.Turns)+2)/3 || off(t) < 0.05 {
			r.times, speeds = append(r.times, t.MS...), append(speeds, t.had())
		}
	}
	r.Speed = quantile(speeds, 0.5)
}

// had is the part that this machine had of what it could do.
func (t turn) had() float64 { return t.Speed * (1 - t.Stolen) }

// clock is the time of the processor, in ticks: in all, and what other machines on it had.
type clock struct{ all, other float64 }

// readClock reads it; there is none where the system does not say.
func readClock() (c clock) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		ticks, _ := strconv.ParseFloat(field, 64) // the first is a name
		if i <= 8 {                               // user, nice, system, idle, iowait, irq, softirq, steal
			c.all += ticks
		}
		if i == 8 {
			c.other = ticks
		}
	}
	return c
}

// stolen is the part that other machines had since an earlier time.
func (c clock) stolen(since clock) float64 {
	return (c.other - since.other) / max(c.all-since.all, 1)
}
