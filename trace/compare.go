// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// Comparison is what a simulation predicted of a step, beside what was measured.
type Comparison struct {
	Predicted, Measured *Step
	// Span is what the step takes.
	Span Compared
	// Kinds are what devices that both timelines have did, added up over them: tasks first, then what they waited for, then communication.
	Kinds []ComparedKind
	// Devices are those that both timelines have.
	Devices []ComparedDevice
	// Missing are devices that only one of them has: a simulation shows one of many that are alike.
	Missing []int
}

// Compared is how long something takes, as predicted and as measured.
type Compared struct{ Predicted, Measured time.Duration }

// Ratio is how many times as long it takes as predicted; not a number if nothing was predicted.
func (c Compared) Ratio() float64 { return float64(c.Measured) / float64(c.Predicted) }

// ComparedKind is one kind of events: "forward", "wait for all-reduce", "all-reduce".
type ComparedKind struct {
	Kind string
	// Events are how many there are. A task that runs in several segments has several.
	Events [2]int
	Compared
	order int
}

// ComparedDevice is what one device did.
type ComparedDevice struct {
	Device                            int
	Label                             string
	Busy, Waiting, Idle               Compared
	PredictedExposed, MeasuredExposed time.Duration
}

// Compare puts what was predicted of a step beside what was measured.
func Compare(predicted, measured *Step) (*Comparison, error) {
	c := &Comparison{Predicted: predicted, Measured: measured}
	reports := [2]*Report{predicted.Report(), measured.Report()}
	c.Span = Compared{reports[0].Span, reports[1].Span}
	by := [2]map[int]DeviceReport{}
	for i, r := range reports {
		by[i] = map[int]DeviceReport{}
		for _, d := range r.Devices {
			by[i][d.Device] = d
		}
	}
	for _, d := range reports[0].Devices {
		m, ok := by[1][d.Device]
		if !ok {
			c.Missing = append(c.Missing, d.Device)
			continue
		}
		c.Devices = append(c.Devices, ComparedDevice{Device: d.Device, Label: m.label(measured.Pipeline), Busy: Compared{d.Busy, m.Busy},
			Waiting: Compared{d.Waiting, m.Waiting}, Idle: Compared{d.Idle, m.Idle}, PredictedExposed: d.Exposed, MeasuredExposed: m.Exposed})
	}
	for _, d := range reports[1].Devices {
		if _, ok := by[0][d.Device]; !ok {
			c.Missing = append(c.Missing, d.Device)
		}
	}
	slices.Sort(c.Missing)
	if len(c.Devices) == 0 {
		return nil, errors.New("epl: the timelines have no device in common; give those of one program and cluster")
	}
	c.kinds()
	return c, nil
}

// kinds adds up the events of the devices that both have.
func (c *Comparison) kinds() {
	both := map[int]bool{}
	for _, d := range c.Devices {
		both[d.Device] = true
	}
	all := map[string]*ComparedKind{}
	for i, s := range []*Step{c.Predicted, c.Measured} {
		for _, e := range s.Events() {
			if !both[e.Device] || e.Kind == Kernel {
				continue
			}
			name, order := e.kind()
			k := all[name]
			if k == nil {
				k = &ComparedKind{Kind: name, order: order}
				all[name] = k
			}
			k.Events[i]++
			if i == 0 {
				k.Predicted += e.End.Sub(e.Start)
			} else {
				k.Measured += e.End.Sub(e.Start)
			}
		}
	}
	for _, k := range all {
		c.Kinds = append(c.Kinds, *k)
	}
	slices.SortFunc(c.Kinds, func(a, b ComparedKind) int {
		if a.order != b.order {
			return a.order - b.order
		}
		return strings.Compare(a.Kind, b.Kind)
	})
}

// kind says what kind of event it is, and where it stands in a table.
func (e Event) kind() (name string, order int) {
	op := plain(e.Op)
	if op == "" {
		op = "merges of one device"
	}
	switch {
	case e.communicates():
		return op, 100
	case e.Kind == Run && e.Task.Kind != "":
		return e.Task.Kind, slices.Index(taskKinds, e.Task.Kind)
	case e.Kind == Run:
		return "other work", 10
	case e.Kind == Data:
		return "wait for data", 20
	case e.Kind == Launch:
		return "start " + op, 50
	case e.Kind == Receive:
		return "receive", 30
	default:
		return "wait for " + op, 40
	}
}

// summary is the comparison in a line.
func (c *Comparison) summary() string {
	return fmt.Sprintf("step predicted %s, measured %s: %s", duration(c.Span.Predicted), duration(c.Span.Measured), ratio(c.Span))
}

func ratio(c Compared) string {
	if c.Predicted == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f×", c.Ratio())
}

// tables are the comparison in numbers; nothing of nil.
func (c *Comparison) tables() string {
	if c == nil {
		return ""
	}
	var b strings.Builder
	rows := [][]string{{"", "events", "", "predicted", "measured", "ratio"}}
	for _, k := range c.Kinds {
		rows = append(rows, []string{k.Kind, strconv.Itoa(k.Events[0]), strconv.Itoa(k.Events[1]), duration(k.Predicted), duration(k.Measured), ratio(k.Compared)})
	}
	align(&b, rows)
	b.WriteString("\n")
	rows = [][]string{{"", "busy", "", "ratio", "waiting", "", "idle", "", "exposed", ""}}
	for _, d := range c.Devices {
		row := []string{d.Label, duration(d.Busy.Predicted), duration(d.Busy.Measured), ratio(d.Busy)}
		for _, x := range []Compared{d.Waiting, d.Idle, {d.PredictedExposed, d.MeasuredExposed}} {
			row = append(row, duration(x.Predicted), duration(x.Measured))
		}
		rows = append(rows, row)
	}
	align(&b, rows)
	b.WriteString("Of two columns the first is predicted, the second measured.\n")
	if n := len(c.Missing); n > 0 {
		fmt.Fprintf(&b, "Devices that only one of the timelines has are left out: %d of them, from device %d.\n", n, c.Missing[0])
	}
	return b.String()
}

// Both is a step that shows them side by side: two rows for each device, from the start of each step.
func (c *Comparison) Both() *Step {
	both := &Step{Program: c.Measured.Program, Number: c.Measured.Number, Pipeline: c.Measured.Pipeline, Workers: c.Measured.Workers, compared: c, names: map[int]string{}}
	known := map[int]bool{}
	for _, d := range c.Devices {
		known[d.Device] = true
	}
	zero := time.Unix(0, 0).UTC()
	for i, s := range []*Step{c.Predicted, c.Measured} {
		start, _ := bounds(s.Events())
		for _, e := range s.Events() {
			if !known[e.Device] {
				continue
			}
			name := fmt.Sprintf("%s, %s", deviceName(e.Device), []string{"predicted", "measured"}[i])
			e.Device = 2*e.Device + i
			both.names[e.Device] = name
			e.Start, e.End = zero.Add(e.Start.Sub(start)), zero.Add(e.End.Sub(start))
			e.Flow = ""
			both.events = append(both.events, e)
		}
	}
	return both
}

// WriteText writes the comparison as tables, and both steps as a chart of letters.
func (c *Comparison) WriteText(w io.Writer, width int) error {
	var b strings.Builder
	both := c.Both()
	fmt.Fprintf(&b, "%s\n%s\n", both.title(), c.summary())
	if clocks := both.clocks(); clocks != "" {
		fmt.Fprintln(&b, clocks)
	}
	fmt.Fprintf(&b, "\n%s\n", c.tables())
	both.letters(&b, both.Report(), width)
	_, err := io.WriteString(w, b.String())
	return errors.Wrap(err, "epl: the comparison as text")
}
