// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// Costs are what a step is predicted to take.
type Costs struct {
	// Devices are those of a model replica.
	Devices []DeviceCost `json:"devices"`
	// Traffic is what the devices of a model replica give others in a step.
	Traffic []Traffic `json:"traffic,omitempty"`
	// Idle is the part of the time that devices wait, if stages take equally long and values travel at once.
	Idle float64 `json:"idle"`
	// StepSeconds is what a step takes in a simulation. Busy and Exposed are the parts of the devices' time in which they compute, and in which they communicate
	// and compute nothing. They are 0 if it is not known what the devices can do.
	StepSeconds float64 `json:"step_seconds,omitempty"`
	Busy        float64 `json:"busy,omitempty"`
	Exposed     float64 `json:"exposed,omitempty"`
}

// DeviceCost is what one device takes.
type DeviceCost struct {
	Peak          int64            `json:"peak_bytes"` // of memory
	Uses          map[string]int64 `json:"uses"`       // what the peak is for, in bytes
	At            string           `json:"at"`         // when the peak is
	ForwardFlops  int64            `json:"forward_flops"`
	BackwardFlops int64            `json:"backward_flops"` // of a micro-batch, as those of forward
	ApplyFlops    int64            `json:"apply_flops"`    // of a step
}

// Traffic is something that travels.
type Traffic struct {
	What  string `json:"what"`
	Bytes int64  `json:"bytes"`
}

// GradientsMerged is communicated between model replicas.
const GradientsMerged = "of gradients merged"

// What else is communicated.
const (
	sentBetween      = "sent from device to device"
	exchangedInStage = "exchanged between the devices of a stage"
	weightsGathered  = "of weights gathered over replicas"
)

// costs adds up what was predicted.
func (r *Result) costs() Costs {
	c := Costs{Devices: make([]DeviceCost, len(r.Account.Places)), Traffic: r.Traffic()}
	for i, x := range r.Account.Places {
		c.Devices[i] = DeviceCost{Peak: x.Peak.Total(), Uses: x.Peak.Map(), At: x.Text}
	}
	for _, op := range r.Final.Main.Ops {
		d := &c.Devices[op.Place]
		switch n := cost.Of(op).Flops; op.Phase {
		case ir.Forward:
			d.ForwardFlops += n
		case ir.Backward:
			d.BackwardFlops += n
		default:
			d.ApplyFlops += n
		}
	}
	if r.Schedule != nil && r.Schedule.Pipeline.Stages > 1 {
		c.Idle = Idle(r.Schedule.Pipeline)
	}
	return c
}

// Idle is the part of the time that devices would wait, if stages took equally long and values traveled at once.
func Idle(p schedule.Pipeline) float64 {
	order, err := p.Order()
	if err != nil {
		return 0
	}
	// Backward takes about twice as long as forward; ZeroBubble halves it.
	total, idle := p.Slots(order, 1, 1, 1)
	if p.Strategy != schedule.ZeroBubble {
		total, idle = p.Slots(order, 1, 2, 0)
	}
	sum := 0.0
	for _, x := range idle {
		sum += x
	}
	return sum / total / float64(len(idle))
}

// Traffic is what the devices of a model replica give others in a step; gradients first.
func (r *Result) Traffic() (all []Traffic) {
	if r.Schedule == nil {
		return nil
	}
	bytes := map[string]int64{}
	devices := func(place int) int64 { return int64(len(r.Schedule.Groups[place])) }
	if r.Schedule.Local.Replicas > 1 {
		for _, b := range r.Schedule.Buckets {
			if n := devices(b.Place); MergesGradients(b) {
				if b.Terms {
					n = 1 // they add up to one
				}
				bytes[GradientsMerged] += n * b.Bytes()
			}
		}
	}
	for place, list := range r.Schedule.Places {
		for _, in := range list {
			switch in.Kind {
			case schedule.Send:
				bytes[sentBetween] += r.Schedule.Carries(r.Schedule.Transfers[in.Transfer])
			case schedule.Exchange:
				what := exchangedInStage
				if axis, _ := in.Op.Change(); axis == ir.Replicas {
					what = weightsGathered
				}
				bytes[what] += devices(place) * max(in.Op.Inputs[0].Bytes(), in.Op.Outputs[0].Bytes())
			}
		}
	}
	for _, what := range []string{GradientsMerged, sentBetween, exchangedInStage, weightsGathered} {
		if bytes[what] > 0 {
			all = append(all, Traffic{what, bytes[what]})
		}
	}
	return all
}

// MergesGradients tells whether a bucket is of gradients.
func MergesGradients(b schedule.Bucket) bool {
	return b.Merges[0].Phase == ir.Backward && b.How.Adds()
}
