// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/schedule"
)

// summaryLine is one of the lines that a plan comes down to.
type summaryLine struct{ Name, Text string }

// summary is a plan in a few lines: what runs where, what a device needs of memory, what is sent, and, if devices are known, what a step takes.
func (c *Program) summary() []summaryLine {
	lines := []summaryLine{{"plan", c.layout()}, {"memory", c.need()}, {"traffic", c.traffic()}}
	if x := c.Plan.Costs; x.StepSeconds > 0 {
		lines = append(lines, summaryLine{"time", fmt.Sprintf("%s a step, simulated: %.1f%% computing, %.1f%% exposed communication, %.1f%% bubble",
			time.Duration(x.StepSeconds*1e9).Round(time.Microsecond), 100*x.Busy, 100*x.Exposed, 100*max(1-x.Busy-x.Exposed, 0))})
	}
	return lines
}

// layout says what runs where.
func (c *Program) layout() string {
	s := c.Schedule
	if s == nil {
		return "1 device: the whole program; a step takes 1 batch"
	}
	text := fmt.Sprintf("%s = %s of %s", words.Count(len(s.Ranks)*len(s.Ranks[0]), "device"), words.Count(s.Local.Replicas, "model replica"), words.Count(len(s.Ranks[0]), "device"))
	if p := s.Pipeline; p.Stages > 1 {
		text += fmt.Sprintf(" in %s (%s, %.1f%% idle if stages take equally long)", words.Count(p.Stages, "stage"), p.Strategy, 100*plan.Idle(p))
	}
	for _, t := range c.Recorded.TaskGraphs {
		if t.Devices > 1 {
			text += fmt.Sprintf(", %s by %s", plain(t.Title()), t.Strategy())
		}
	}
	if shares := c.Plan.Shares; shares != nil {
		return text + fmt.Sprintf("; a step takes %s, %s micro-batches for the replicas", words.Count(s.Local.Instances(), "batch"), shares)
	}
	return text + fmt.Sprintf("; a step takes %s, %s for each replica", words.Count(s.Local.Instances(), "batch"), words.Count(s.Local.MicroBatches, "micro-batch"))
}

// need says what the device that needs most has to hold.
func (c *Program) need() string {
	worst := c.Account.Places[c.Account.Worst()].Peak
	var uses []string
	for _, u := range schedule.Uses() {
		if worst[u]*20 > worst.Total() {
			uses = append(uses, u.String()+" "+bytesText(worst[u]))
		}
	}
	text := fmt.Sprintf("at most %s on a device: %s", bytesText(worst.Total()), strings.Join(uses, ", "))
	switch limit := c.Config.Cluster.DeviceMemory; {
	case limit > 0 && worst.Total() > limit:
		text += fmt.Sprintf("; it does not fit into %s (cluster.device_memory)", bytesText(limit))
	case limit > 0:
		text += fmt.Sprintf("; it fits into %s (cluster.device_memory)", bytesText(limit))
	default:
		if f := c.Fullest(c.Account, c.limit); f.Over() {
			text += fmt.Sprintf("; %s", f)
		} else if f.Has > 0 {
			text += fmt.Sprintf("; it fits: the device with least room is %d, which needs %s and has %s", f.Rank, bytesText(f.Needs.Total()), bytesText(f.Has))
		}
	}
	return text
}

// traffic says what devices give each other in a step.
func (c *Program) traffic() string {
	if c.Schedule == nil || len(c.Schedule.Ranks)*len(c.Schedule.Ranks[0]) == 1 {
		return "none: there is one device"
	}
	buckets := 0 // of gradients
	for _, b := range c.Schedule.Buckets {
		buckets += one(plan.MergesGradients(b))
	}
	var parts []string
	for _, t := range c.Traffic() {
		text := bytesText(t.Bytes) + " " + t.What
		if t.What == plan.GradientsMerged {
			text += " in " + words.Count(buckets, "bucket")
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "hardly any"
	}
	return "a step of a replica: " + strings.Join(parts, ", ")
}
