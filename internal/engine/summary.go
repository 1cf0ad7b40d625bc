package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// summary is a plan in three lines: what runs where, what a device needs of memory, and what is sent.
func (o Options) summary(c *Compiled) string {
	return fmt.Sprintf("plan    %s\nmemory  %s\ntraffic %s\n", c.layout(), o.need(c), c.traffic())
}

// layout says what runs where.
func (c *Compiled) layout() string {
	devices := 0
	for _, replica := range c.ranks() {
		devices += len(replica)
	}
	text := count(devices, "device")
	if c.Schedule == nil {
		return text + ": the whole program; a step takes 1 batch"
	}
	s := c.Schedule
	text += fmt.Sprintf(" = %s of %s", count(s.Local.Replicas, "model replica"), count(len(s.Ranks[0]), "device"))
	if p := s.Pipeline; p.Stages > 1 {
		text += fmt.Sprintf(" in %s (%s, %.1f%% idle if stages take equally long)", count(p.Stages, "stage"), p.Strategy, 100*idle(p))
	}
	for _, t := range c.Recorded.TaskGraphs {
		if t.Devices > 1 {
			text += fmt.Sprintf(", %s %s", plain(t.Title()), t.Strategy())
		}
	}
	return text + fmt.Sprintf("; a step takes %s, %s for each replica", batches(s.Local.Instances()), micros(s.Local.MicroBatches))
}

func batches(n int) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}

// ranks are the devices of each model replica.
func (c *Compiled) ranks() [][]int {
	if c.Schedule == nil {
		return [][]int{{0}}
	}
	return c.Schedule.Ranks
}

// idle is the part of the time that devices would wait, if stages took equally long and values traveled at once.
func idle(p schedule.Pipeline) float64 {
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

// need says what the device that needs most has to hold.
func (o Options) need(c *Compiled) string {
	worst := c.Account.Places[c.Account.Worst()].Peak
	var uses []string
	for _, u := range schedule.Uses() {
		if worst[u]*20 > worst.Total() {
			uses = append(uses, u.String()+" "+bytesText(worst[u]))
		}
	}
	text := fmt.Sprintf("at most %s on a device: %s", bytesText(worst.Total()), strings.Join(uses, ", "))
	switch limit := o.Config.Cluster.DeviceMemory; {
	case limit > 0 && worst.Total() > limit:
		text += fmt.Sprintf("; it does not fit into %s (cluster.device_memory)", bytesText(limit))
	case limit > 0:
		text += fmt.Sprintf("; it fits into %s (cluster.device_memory)", bytesText(limit))
	}
	return text
}

// traffic says what devices give each other in a step.
func (c *Compiled) traffic() string {
	if c.Schedule == nil || len(c.ranks())*len(c.ranks()[0]) == 1 {
		return "none: there is one device"
	}
	var parts []string
	buckets, gradients := 0, int64(0)
	for _, b := range c.Schedule.Buckets {
		if b.Merges[0].Phase == ir.Backward && b.How.Adds() {
			buckets++
			gradients += b.Bytes()
		}
	}
	if buckets > 0 && c.Schedule.Local.Replicas > 1 {
		parts = append(parts, fmt.Sprintf("%s of gradients merged in %s", bytesText(gradients), count(buckets, "bucket")))
	}
	sent := map[string]int64{}
	for place, list := range c.Schedule.Places {
		for _, in := range list {
			switch in.Kind {
			case schedule.Send:
				sent["sent from device to device"] += c.Schedule.Transfers[in.Transfer].Value.Bytes()
			case schedule.Exchange:
				a := in.Op.Attrs.(*ir.Exchange)
				i := slices.Index(a.Places, place)
				what := "exchanged between the devices of a stage"
				if a.Replicas {
					what = "of weights gathered over replicas (zero.level)"
				}
				sent[what] += max(in.Op.Inputs[i].Bytes(), in.Op.Outputs[i].Bytes())
			}
		}
	}
	for _, what := range []string{"sent from device to device", "exchanged between the devices of a stage", "of weights gathered over replicas (zero.level)"} {
		if sent[what] > 0 {
			parts = append(parts, bytesText(sent[what])+" "+what)
		}
	}
	if len(parts) == 0 {
		return "hardly any"
	}
	return "a step of a replica: " + strings.Join(parts, ", ")
}
