package engine

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/runtime"
	"github.com/easyparallel/epl/schedule"
)

// Predicted is what a step of the last training program needs on the devices of this worker, in the words of what they
// are found to have needed: PeakBytes, Peak and Most.
func (e *Engine) Predicted() []runtime.DeviceStats {
	all := make([]runtime.DeviceStats, len(e.devices))
	for _, c := range slices.Backward(e.Programs()) {
		if c.Account == nil || !c.Recorded.IsTraining() {
			continue
		}
		first := 0
		if j := e.opts.Job; j != nil {
			first = j.First()
		}
		for d := range all {
			place := 0
			if c.Schedule != nil {
				for _, ranks := range c.Schedule.Ranks {
					place = max(place, slices.Index(ranks, first+d))
				}
			} else if d > 0 {
				continue
			}
			x := c.Account.Places[place]
			all[d] = runtime.DeviceStats{PeakBytes: x.Peak.Total(), Peak: x.Peak.Map(), Most: x.Most.Map()}
		}
		break
	}
	return all
}

// Plan is that of the last training program; nil before the first.
func (e *Engine) Plan() *plan.Plan {
	for _, c := range slices.Backward(e.Programs()) {
		if c.Err == nil && c.Recorded.IsTraining() {
			return c.Plan
		}
	}
	return nil
}

// fits refuses a training program whose devices have too little memory, with the account and what would help.
func (o Options) fits(c *Compiled) error {
	limit := o.Config.Cluster.DeviceMemory
	if limit == 0 || !c.Recorded.IsTraining() || c.Account.Peak() <= limit {
		return nil
	}
	return errors.WithMessagef(errors.Errorf("epl: %s\n%s", c.needs(limit), o.advice(c)), "program %q", c.Recorded.Name)
}

// needs says what the device needs that needs most, and what for.
func (c *Compiled) needs(limit int64) string {
	place := c.Account.Worst()
	x := c.Account.Places[place]
	rank := 0
	if c.Schedule != nil {
		rank = c.Schedule.Ranks[0][place]
	}
	var w strings.Builder
	fmt.Fprintf(&w, "device %d needs %s", rank, bytesText(x.Peak.Total()))
	if limit > 0 {
		fmt.Fprintf(&w, " and has %s (cluster.device_memory)", bytesText(limit))
	}
	fmt.Fprintf(&w, ", by EPL's account, at %s:\n", x.Text)
	t := table{head: []string{"for", ">bytes"}}
	uses := schedule.Uses()
	slices.SortStableFunc(uses, func(a, b schedule.Use) int { return int(max(min(x.Peak[b]-x.Peak[a], 1), -1)) })
	for _, u := range uses {
		if x.Peak[u] > 0 {
			t.row(u.String(), bytesText(x.Peak[u]))
		}
	}
	t.write(&w, "  ")
	return strings.TrimSuffix(w.String(), "\n")
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
	if x.o.Job != nil {
		defer x.o.Job.Training()()
	}
	outs, err := x.Executable.Execute(inputs, donate, device)
	if err != nil && slices.ContainsFunc(exhausted, func(s string) bool { return strings.Contains(err.Error(), s) }) {
		err = errors.Errorf("%v\nepl: a device has no memory left: %s\n%s", err, x.c.needs(0), x.o.advice(x.c))
	}
	return outs, err
}

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

func (o Options) writePlanFiles(c *Compiled, d *dump) error {
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{o.Plan + ".svg", func(w io.Writer) error { return c.writeMemoryPicture(w, o.Config, false) }},
		{o.Plan + ".json", c.Plan.Encode},
		{o.Plan + ".html", d.page},
		{o.Plan + ".draft", func(w io.Writer) error { _, err := io.WriteString(w, o.planText(c)); return err }},
	} {
		var b bytes.Buffer
		if err := f.write(&b); err != nil {
			return err
		}
		if err := os.WriteFile(f.name, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return os.Rename(o.Plan+".draft", o.Plan)
}

func (o Options) planText(c *Compiled) string {
	var w strings.Builder
	w.WriteString(o.summary(c))
	fmt.Fprintf(&w, "\nsettings\n%s\n\n", indent(o.Config.String()))
	newReport(c, 1, c.Final, o.Config).write(&w, "")
	if err := o.fits(c); err != nil {
		fmt.Fprintf(&w, "\nit does not fit: %s\n", strings.TrimPrefix(errors.Cause(err).Error(), "epl: "))
	}
	if len(c.decisions) > 0 {
		w.WriteString("\namp.debug_log\n")
		for _, line := range c.decisions {
			fmt.Fprintf(&w, "  %s\n", strings.TrimPrefix(line, "epl: amp: "))
		}
	}
	return w.String()
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }
