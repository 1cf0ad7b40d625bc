// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// noticeable is the share of the devices' time from which on a loss is worth a change of the program.
	noticeable = 0.15
	// uneven is how many times as long as the mean a device or a stage works before it counts as too slow.
	uneven = 1.3
	// tiny is the mean size of messages that take their time by being many, and manyCalls how many of them a step has on a device.
	tiny      = 256 << 10
	manyCalls = 8
	// short is a time between steps that is the trainer's and the loop's own.
	short = time.Millisecond
)

// Advice answers in at most three sentences what should be changed: the largest loss, what to do about it, and what comes
// next. If no loss is large, it names the ops that take most.
func (p *Profile) Advice() string {
	type loss struct {
		share float64
		name  string
		says  func(share string) (cause, change string)
	}
	losses := []loss{
		{p.share(dataPart, fetchPart, betweenPart), "the time between steps and for data", p.slowData},
		{p.share(commPart), "communication that computation does not hide", p.communication},
		{p.share(stagesPart), "waiting for other stages", p.stages},
		{p.share(idlePart), "idle time within steps", p.idle},
	}
	slices.SortStableFunc(losses, func(a, b loss) int { return cmp.Compare(b.share, a.share) })
	first, second := losses[0], losses[1]
	if first.share < noticeable {
		return p.computation()
	}
	cause, change := first.says(whole(first.share))
	text := cause + " " + change
	if second.share >= noticeable {
		text += fmt.Sprintf(" The next largest loss is %s: %s.", second.name, whole(second.share))
	}
	return text
}

// part is how long some parts take.
func (p *Profile) part(names ...string) (sum time.Duration) {
	for _, part := range p.Parts {
		if slices.Contains(names, part.Name) {
			sum += part.Time
		}
	}
	return sum
}

// share is the part of the devices' time that some parts take.
func (p *Profile) share(names ...string) float64 {
	return float64(p.part(names...)) / float64(max(p.Total, 1))
}

func whole(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// slowData is about devices that wait for the program around the steps.
func (p *Profile) slowData(share string) (cause, change string) {
	const ahead = "Make batches ahead of time, in goroutines of the dataset, and keep them small in bytes."
	if p.share(dataPart, fetchPart) > p.share(betweenPart) {
		return fmt.Sprintf("The dataset is slow: devices spend %s of their time waiting for batches or taking them.", share), ahead
	}
	if gap := p.part(betweenPart) / time.Duration(p.Devices*p.Steps); gap < short {
		return fmt.Sprintf("The steps are short: what any program does between two of them takes %s, and that is %s of the devices' time.", duration(gap), share),
			"A larger batch makes it a smaller part."
	}
	if p.fetches {
		return fmt.Sprintf("A hook is slow, or something else that the program does between steps, and it is not the dataset: devices have nothing to do for %s of their time.", share),
			"Let what runs after every step, such as logging, evaluation and saving, do less, or less often."
	}
	return fmt.Sprintf("The dataset is slow, or something else that the program does between steps: devices have nothing to do for %s of their time.", share),
		"Make batches ahead of time, in goroutines of the dataset, and let hooks that run after every step do less, or less often; with env.Dataset, EPL tells the two apart."
}

// communication is about devices that wait for collective communication.
func (p *Profile) communication(share string) (cause, change string) {
	if device, times, ok := p.slowest(); ok {
		return fmt.Sprintf("The devices are unbalanced: device %d computes %.1f times as long as they do on average, and all wait for it when they communicate, %s of their time in all.", device, times, share),
			"Give it a smaller share of the samples, or find out what slows it down."
	}
	var most Traffic
	for _, t := range p.Traffic {
		if t.Op != sendOp && t.Exposed > most.Exposed {
			most = t
		}
	}
	op := plain(most.Op)
	calls := float64(most.Calls) / float64(p.Devices*p.Steps)
	size := most.Bytes / int64(max(most.Calls, 1))
	switch {
	case op == "":
		return fmt.Sprintf("Communication is exposed: devices wait for it for %s of their time.", share),
			"A larger batch for each device gives them more to compute between two waits."
	case op == "load" || op == "store":
		return fmt.Sprintf("Offloading is exposed: devices wait for values on their way between host and device for %s of their time.", share),
			"Offload less, if the memory allows it."
	case size < tiny && calls >= manyCalls:
		cause = fmt.Sprintf("Communication is exposed, by many tiny messages: %.0f of kind %s in a step, %s each on average, for which devices wait %s of their time.",
			calls, op, bytesText(size), share)
		if op == "all-reduce" || op == "reduce-scatter" {
			return cause, "Fuse gradients into fewer buckets by a smaller communication.max_splits, and if there are several micro-batches or splits, use fewer."
		}
		return cause, "Split fewer layers, or larger ones."
	}
	return fmt.Sprintf("Communication is exposed: devices wait for it for %s of their time, mostly for %s of %s in a step.",
			share, op, bytesText(most.Bytes/int64(p.Devices*p.Steps))),
		"A larger batch for each device, more micro-batches before gradients are merged, or communication.fp16 make it a smaller part."
}

// slowest is the device that works longest, if that is much longer than others do at the same thing, and most of why they wait.
func (p *Profile) slowest() (device int, times float64, ok bool) {
	if p.Pipeline.Stages > 1 || len(p.work) < 2 {
		return 0, 0, false
	}
	var sum, most time.Duration
	for d, t := range p.work {
		sum += t
		if t > most || t == most && d < device {
			device, most = d, t
		}
	}
	times = float64(most) * float64(len(p.work)) / float64(max(sum, 1))
	explains := most*time.Duration(len(p.work)) - sum
	return device, times, times >= uneven && explains >= p.part(commPart)/2
}

// stages is about devices that wait for other stages.
func (p *Profile) stages(share string) (cause, change string) {
	var sum time.Duration
	var most, least StageTime
	for i, s := range p.Stages {
		sum += s.Work()
		if i == 0 || s.Work() > most.Work() {
			most = s
		}
		if i == 0 || s.Work() < least.Work() {
			least = s
		}
	}
	if times := float64(most.Work()) * float64(len(p.Stages)) / float64(max(sum, 1)); times >= uneven {
		return fmt.Sprintf("The stages are unbalanced: stage %d computes %.1f times as long as stages do on average, and the others wait for it, %s of the devices' time in all.", most.Stage, times, share),
			fmt.Sprintf("Move layers from stage %d to stage %d, or let EPL cut the model by auto.auto_parallel.", most.Stage, least.Stage)
	}
	return fmt.Sprintf("The pipeline has a bubble: its stages are balanced, and devices wait for each other for %s of their time, with %d micro-batches on %d stages.", share, p.Pipeline.MicroBatches, p.Pipeline.Stages),
		"Use more micro-batches by pipeline.num_micro_batch, fewer stages, or a pipeline.strategy with a smaller bubble."
}

// idle is about steps whose instructions take longer to start than to run.
func (p *Profile) idle(share string) (cause, change string) {
	return fmt.Sprintf("The steps are short: devices have nothing to do for %s of their time between one instruction and the next.", share),
		"A larger batch makes that a smaller part."
}

// computation is about devices that are busy.
func (p *Profile) computation() string {
	var work, longest Part
	for _, part := range p.Parts {
		if slices.Contains(lossParts, part.Name) {
			continue
		}
		work.Time += part.Time
		if part.Time > longest.Time {
			longest = part
		}
	}
	text := fmt.Sprintf("The devices compute for %s of their time, and no loss stands out.", whole(float64(work.Time)/float64(max(p.Total, 1))))
	if len(p.Ops) == 0 {
		return text + fmt.Sprintf(" Most of it is %s: %s.", longest.Name, share(longest.Time, p.Total))
	}
	var all time.Duration
	for _, o := range p.Ops {
		all += o.Time
	}
	kind := p.kinds()[0]
	var top OpTime
	for _, o := range p.Ops { // the longest first
		if o.Kind == kind.Kind {
			top = o
			break
		}
	}
	text += fmt.Sprintf(" Ops of kind %s take %s of what ops take, most of all %s (%s of it)", plain(kind.Kind), share(kind.Time, all), plain(top.Name), share(top.Time, all))
	if line := p.Lines()[0]; line.Line != "" {
		text += fmt.Sprintf("; of lines, %s takes most (%s)", plain(line.Line), share(line.Time, all))
	}
	text += "."
	if strings.Contains(top.Kind, "product") {
		return text + " Smaller products, half precision (amp.level) where the device is faster at it, or more devices make the step shorter."
	}
	return text + " Fewer of them, or more devices, make the step shorter."
}
