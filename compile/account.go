// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/explain"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/schedule"
)

// Predicted is what a step of the last training program needs on the devices of this worker, in the words of what they
// are found to have needed: PeakBytes, Peak and Most.
func (e *Engine) Predicted() []exec.DeviceStats {
	c := e.last(func(c *Compiled) bool { return c.Account != nil })
	if c == nil {
		return make([]exec.DeviceStats, len(e.opts.Cluster.LocalDevices()))
	}
	return e.predicted(c)
}

// predicted is that of a program.
func (e *Engine) predicted(c *Compiled) []exec.DeviceStats {
	all, account := make([]exec.DeviceStats, len(e.opts.Cluster.LocalDevices())), c.Counted()
	first := e.opts.first()
	for d := range all {
		place := d
		if c.Schedule != nil {
			place = 0
			for _, ranks := range c.Schedule.Ranks {
				if device := slices.Index(ranks, first+d); device >= 0 {
					place = c.Schedule.PlaceOf(device)
				}
			}
		}
		if place < len(account.Places) {
			x := account.Places[place]
			all[d] = exec.DeviceStats{PeakBytes: x.Peak.Total(), Peak: x.Peak.Map(), Most: x.Most.Map()}
		}
	}
	return all
}

// first is the rank of the first device of this worker.
func (o Options) first() int {
	if o.Job == nil {
		return 0
	}
	return o.Job.First()
}

// Plan is that of the last training program; nil before the first.
func (e *Engine) Plan() *plan.Plan {
	if c := e.last(func(c *Compiled) bool { return c.Err == nil }); c != nil {
		return c.Plan
	}
	return nil
}

// GlobalBatch is how many samples a step of the last training program takes; 0 before the first.
func (e *Engine) GlobalBatch() int {
	if c := e.last(func(c *Compiled) bool { return c.Err == nil }); c != nil {
		return c.Plan.Batches() * c.source.Samples()
	}
	return 0
}

// last is the last training program of some; nil if there is none.
func (e *Engine) last(is func(*Compiled) bool) *Compiled {
	for _, c := range slices.Backward(e.Programs()) {
		if c.Recorded.IsTraining() && is(c) {
			return c
		}
	}
	return nil
}

// limit is how much memory a device has, and by what; 0: that is not known.
func (o Options) limit(rank int) (bytes int64, by string) {
	bytes, by = o.Config.Cluster.DeviceMemory, "cluster.device_memory"
	switch {
	case o.own > 0 && (bytes == 0 || o.own < bytes):
		return o.own, "what XLA may take of the GPU: docs/gpu.md, Memory"
	case bytes == 0:
		return o.Memory(o.Config, rank), "the description of the cluster"
	}
	return bytes, by
}

// fullest is the device of a program that has least room by an account, and by what.
func (o Options) fullest(c *Compiled, a *schedule.Account) (f plan.Fullest, by string) {
	f = c.Fullest(a, func(rank int) int64 { bytes, _ := o.limit(rank); return bytes })
	_, by = o.limit(f.Rank)
	return f, by
}

// measured takes over what devices say of a training program now that it is compiled, and refuses it before its first step if that is too
// much.
func (o Options) measured(x compute.Executable, c *Compiled) error {
	if m, ok := x.(exec.Measured); ok {
		if lists, needs := m.Measured(); needs != nil {
			c.Measured = c.AccountOf(lists, needs)
		}
	}
	c.together(x)
	if c.Measured == nil {
		o.own = 0 // the account of a program is not exact enough to refuse what may fit
	}
	return o.fits(c)
}

// together notes which devices run segments together.
func (c *Compiled) together(x compute.Executable) {
	if g, ok := x.(exec.Grouped); ok {
		c.Lists, c.Host = g.Lists()
	}
}

// fits refuses a training program whose devices have too little memory, with the account and what would help.
func (o Options) fits(c *Compiled) error {
	f, by := o.fullest(c, c.Counted())
	if f.Has == 0 && o.Host > 0 { // nobody says what a device has: more than the machine it cannot be
		if cfg, err := o.Config.With([]string{fmt.Sprintf("cluster.device_memory=%d", o.Host)}); err == nil {
			o.Config = cfg
			f, _ = o.fullest(c, c.Counted())
			by = "the memory of this machine"
		}
	}
	if !f.Over() || !c.Recorded.IsTraining() {
		return nil
	}
	return errors.WithMessagef(errors.Errorf("epl: %s\n%s", c.Needs(f, by), o.advice(c)), "program %q", c.Recorded.Name)
}

// advice lists the settings that would help, by how much. If devices say what they need, what they would need is in proportion.
func (o Options) advice(c *Compiled) string {
	o.Target.Cut = c.Cut
	f, _ := o.fullest(c, c.Counted())
	account, _ := o.fullest(c, c.Account)
	predicted, now := account.Needs.Total(), f.Needs.Total()
	cfg := o.Config
	if scaled := int64(float64(f.Has) * float64(predicted) / float64(max(now, 1))); f.Has > 0 && scaled != o.Memory(cfg, f.Rank) {
		other, err := cfg.With([]string{fmt.Sprintf("cluster.device_memory=%d", scaled)})
		if err == nil {
			cfg = other
		}
	}
	all, bug := plan.Suggest(c.source, cfg, o.Target, predicted)
	for i := range all {
		all[i].Peak = int64(float64(all[i].Peak) * float64(now) / float64(max(predicted, 1)))
	}
	text := explain.Advice(all)
	if bug != nil {
		text += fmt.Sprintf("\nepl: %v", bug)
	}
	return text
}

// exhausted are the words by which inner backends say that a device has no memory left.
var exhausted = []string{"RESOURCE_EXHAUSTED", "out of memory", "Out of memory", "OUT_OF_MEMORY"}

// accounted is a training program: the job is told that it runs, and the error of a device that ran out of memory for real
// has the account.
type accounted struct {
	compute.Executable
	o Options
	c *Compiled
}

// Execute implements compute.Executable.
func (x accounted) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	x.o.Faults.Step()
	if x.o.Job != nil {
		defer x.o.Job.Training()()
	}
	outs, err := x.Executable.Execute(inputs, donate, device)
	return outs, x.o.advised(err, x.c)
}

// Advise adds to the error of a device that ran out of memory what helps. Such an error comes late, when something is read.
func (e *Engine) Advise(err error) error {
	if c := e.last(func(c *Compiled) bool { return c.Account != nil }); c != nil {
		return e.opts.advised(err, c)
	}
	return err
}

// advised is the error of a training program, with its account if a device has no memory left.
func (o Options) advised(err error, c *Compiled) error {
	if err == nil || strings.Contains(err.Error(), noMemory) || !slices.ContainsFunc(exhausted, func(s string) bool { return strings.Contains(err.Error(), s) }) {
		return err
	}
	f, by := o.fullest(c, c.Counted())
	why := ""
	if f.Has > 0 && !f.Over() {
		why = ", though a training step alone should fit: another program, or process, took it"
	}
	return errors.Errorf("%v\nepl: %s%s: %s\n%s", err, noMemory, why, c.Needs(f, by), o.advice(c))
}

// noMemory begins what is said then, once.
const noMemory = "a device has no memory left"

// writePlan writes down what would be done with a training program, for those who only want to know. The program does not run:
// the error says why. The plan is also there as JSON, as a page and as a picture of its memory; its text comes last and all at
// once. The first plan stays.
func (o Options) writePlan(c *Compiled, d *dump) error {
	if _, err := os.Stat(o.Plan); err != nil {
		if err := o.writePlanFiles(c, d); err != nil {
			return errors.Wrapf(err, "epl: EPL_PLAN_OUT=%q: cannot write the plan down", o.Plan)
		}
	}
	return errors.Errorf("epl: the plan of program %q is in %s; it does not run, because EPL_PLAN_OUT is set", c.Recorded.Name, o.Plan)
}

// planFile is one of the files of a plan.
type planFile struct {
	name  string
	write func(io.Writer) error
}

func (o Options) writePlanFiles(c *Compiled, d *dump) error {
	if err := c.Plan.ForAll(c.source, o.Config, o.Target); err != nil {
		return err
	}
	files := []planFile{
		{o.Plan + ".svg", c.MemoryPicture},
		{o.Plan + ".json", c.Plan.Encode},
		{o.Plan + ".html", func(w io.Writer) error { return c.WritePage(w, d.stages) }},
	}
	c.Unfit = o.fits(c)
	files = append(append(files, o.simulated(c)...), planFile{o.Plan + ".draft", func(w io.Writer) error { _, err := io.WriteString(w, c.PlanText()); return err }})
	if err := writeFiles(files); err != nil {
		return err
	}
	return os.Rename(o.Plan+".draft", o.Plan)
}

// writeFiles writes files, several at the same time.
func writeFiles(files []planFile) error {
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range files {
		all.Go(func() error {
			var b bytes.Buffer
			if err := f.write(&b); err != nil {
				return err
			}
			return os.WriteFile(f.name, b.Bytes(), 0o644)
		})
	}
	return all.Wait()
}

// simulate simulates a step of a training program, for pages and files, if it is known what the devices can do.
func (o Options) simulate(c *Compiled) (err error) {
	if o.Hardware.Known() && c.Recorded.IsTraining() {
		c.Hardware = o.Hardware
		c.Simulated, c.changes, err = c.Simulate(o.Hardware, o.Changes...)
	}
	return err
}

// simulated are the files of a simulation: its text, and its timeline in the formats of one. There are none if it is not asked for.
func (o Options) simulated(c *Compiled) []planFile {
	if !o.Simulate {
		return nil
	}
	const width = 1440 // of pictures
	timeline := c.Simulated.Trace()
	return []planFile{
		{o.Plan + ".sim", func(w io.Writer) error { return c.Simulated.WriteText(w, c.changes...) }},
		{o.Plan + ".sim.json", timeline.WriteChrome},
		{o.Plan + ".sim.svg", func(w io.Writer) error { return timeline.WriteSVG(w, width) }},
		{o.Plan + ".sim.html", func(w io.Writer) error { return timeline.WriteHTML(w, width) }},
	}
}
