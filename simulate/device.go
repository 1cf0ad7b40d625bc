// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// actor simulates the devices of a place that are alike, in the model replicas of a class.
type actor struct {
	*run
	class     *class
	place     int
	positions []int // of the devices; the first is simulated
	device    cost.Device
	// What its links would be if it does not share them.
	inside, between ownLink
	cores           []use

	next    int                       // instruction
	coming  map[schedule.Slot]*coming // values that are on their way
	summed  map[int]bool              // buckets whose sums over micro-batches have begun
	merging map[int]*signal           // buckets on their way
	sends   []*signal                 // that may not be over
	began   []float64                 // by instruction: when it began; only if a timeline shows the memory
	events  []trace.Event             // of the first device
	carried [][2]float64              // from when to when values travel to it, or from it
	over    bool
	end     float64
}

// coming is a value on its way, by some op.
type coming struct {
	*signal
	op string
}

func (a *actor) list() []schedule.Instr { return a.lists.Places[a.place] }

// rank is the device that is simulated.
func (a *actor) rank() int { return a.rankOf(a.class.replicas[0], a.place, a.positions[0]) }

// step goes on with the list, as far as it can without waiting.
func (a *actor) step() {
	list := a.list()
	for a.next < len(list) {
		in := list[a.next]
		if a.waits(in) {
			return
		}
		if a.o.Account != nil && !a.o.Short {
			a.began = append(a.began, a.now)
		}
		a.next++
		if !a.do(in) {
			return
		}
	}
	a.finish()
}

// waits tells whether the device waits for something on its way that an instruction uses, or frees.
func (a *actor) waits(in schedule.Instr) bool {
	if len(a.coming) == 0 {
		return false
	}
	for _, slots := range [][]schedule.Slot{a.lists.Uses(in), in.Frees} {
		for _, at := range slots {
			c := a.coming[at]
			if c == nil {
				continue
			}
			delete(a.coming, at)
			if !c.over {
				a.await(at, c)
				return true
			}
		}
	}
	return false
}

// await goes on when a value is there.
func (a *actor) await(at schedule.Slot, c *coming) {
	start := a.now
	c.then(func() {
		a.did(trace.Event{Kind: trace.Wait, Op: c.op, Name: a.name(at.Value.String)}, start)
		a.step()
	})
}

// do does an instruction. If it returns false, the list goes on later, by itself.
func (a *actor) do(in schedule.Instr) bool {
	if in.Micro >= a.lists.Local.Share(a.class.replicas[0]) && !a.lists.Meets(in) {
		return true // other model replicas have more micro-batches
	}
	switch in.Kind {
	case schedule.Run:
		a.segment(in)
		return false
	case schedule.Accumulate:
		b := a.lists.Buckets[in.Bucket]
		if !b.How.Adds() {
			return true
		}
		return !a.accumulate(in.Bucket, in.Micro, b.Bytes())
	case schedule.Merge:
		return a.merge(in)
	case schedule.Wait:
		a.wait(in)
		return false
	case schedule.Feed:
		if in.Transfer >= 0 && a.gets() {
			return a.receive(in)
		}
		a.computes(moves(a.device, in.Value.Bytes(), in.Value.Bytes()), trace.Event{Kind: trace.Data, Name: a.name(in.Value.String)})
		return false
	case schedule.Send:
		a.gives(in)
		return true
	case schedule.Receive:
		return a.receive(in)
	case schedule.Exchange:
		return a.exchange(in)
	case schedule.Load:
		c := &coming{&signal{clock: &a.clock}, "load"}
		a.coming[schedule.Slot{Value: in.Value, Micro: schedule.Once}] = c
		a.copies(in.Value, c.op, c.fire)
		return true
	case schedule.Store:
		start := a.now
		a.copies(in.Value, "store", func() {
			a.did(trace.Event{Kind: trace.Wait, Op: "store", Name: a.name(in.Value.String)}, start)
			a.step()
		})
		return false
	}
	return true
}

// gets tells whether one of the devices is on another host than the data of its model replica.
func (a *actor) gets() bool {
	replica := a.class.replicas[0]
	home := a.cluster.Devices[a.lists.Ranks[replica][0]].Host
	return slices.ContainsFunc(a.positions, func(position int) bool { return a.deviceOf(replica, a.place, position).Host != home })
}

// did notes what the device itself did, until now.
func (a *actor) did(e trace.Event, start float64) {
	e.Start, e.End = at(start), at(a.now)
	if !a.o.Short && (e.End.After(e.Start) || e.Flow != "") {
		a.events = append(a.events, e)
	}
}

// name is what an event is called, if there will be a timeline: most simulations are short.
func (a *actor) name(text func() string) string {
	if a.o.Short {
		return ""
	}
	return text()
}

// bucket names one.
func (a *actor) bucket(n int) string {
	return a.name(func() string { return fmt.Sprintf("bucket %d", n) })
}

// communicated notes what went on beside, until now.
func (a *actor) communicated(lane int, op, name string, start float64, bytes int64) {
	a.did(trace.Event{Lane: lane, Kind: trace.Communicate, Op: op, Name: name, Bytes: bytes}, start)
}

// travelled notes that something travelled to the device, or from it, until now.
func (a *actor) travelled(start float64) {
	if !a.o.Short {
		a.carried = append(a.carried, [2]float64{start, a.now})
	}
}

// The lanes of a timeline, as those of exec/local.
func (a *actor) sendLane() int     { return 1 + a.o.Communicators }
func (a *actor) hostLane() int     { return 2 + a.o.Communicators }
func (a *actor) exchangeLane() int { return 3 + a.o.Communicators }

// at is a moment in a timeline, which begins at the epoch.
func at(ns float64) time.Time { return time.Unix(0, int64(ns)).UTC() }

// computes lets the device compute, and go on after that.
func (a *actor) computes(ns float64, e trace.Event) {
	start := a.now
	a.start(ns, a.cores, func() {
		a.did(e, start)
		a.step()
	})
}

// segment runs a segment. One that devices run together is over for all of them when they have communicated.
func (a *actor) segment(in schedule.Instr) {
	x := a.lists.Segments[in.Segment]
	e := trace.Event{Kind: trace.Run, Name: a.name(func() string { return a.lists.Text(in) }), Task: trace.Task{Kind: string(x.Kind), Stage: x.Stage, Micro: in.Micro}}
	calls := inside(x)
	if len(calls) == 0 {
		a.computes(a.run.segment(in.Segment, a.positions[0], a.device), e)
		return
	}
	start, index := a.now, a.next
	a.start(a.run.segment(in.Segment, a.positions[0], a.device), a.cores, func() {
		a.did(e, start)
		begun := a.now
		a.meet(meetingKey{nil, a.place, index}, a.run.place(a.place), a.lane(laneKey{nil, a.place, -1, false}), a.merges(a.place, true, false), calls).then(func() {
			a.did(trace.Event{Kind: trace.Wait, Op: "collectives", Name: e.Name}, begun)
			a.communicated(a.exchangeLane(), "collectives", e.Name, begun, bytesOf(calls))
			a.step()
		})
	})
}

// inside are the collectives of a segment that devices run together.
func inside(s *schedule.Segment) (calls []call) {
	if s.Mesh == nil || s.Mesh.Devices() == 1 {
		return nil
	}
	for _, op := range s.First.Ops {
		if c, ok := op.Attrs.(*ir.Communicate); ok && len(c.Groups) > 0 && len(c.Groups[0]) > 1 {
			calls = append(calls, call{collectives[c.How], max(op.Inputs[0].Bytes(), op.Outputs[0].Bytes())})
		}
	}
	return calls
}

func bytesOf(calls []call) (n int64) {
	for _, c := range calls {
		n += c.bytes
	}
	return n
}

// accumulate adds a bucket's values to those of the micro-batches before; the first are the sums. It tells whether that takes time.
func (a *actor) accumulate(bucket, micro int, bytes int64) bool {
	if !a.summed[bucket] {
		a.summed[bucket] = true
		return false
	}
	ns := moves(a.device, 2*bytes, bytes) + float64(a.device.Profile.Segment)/a.device.Speed
	stage := 0
	if after := a.lists.Buckets[bucket].After; after < len(a.lists.Segments) {
		stage = a.lists.Segments[after].Stage
	}
	name := a.name(func() string { return fmt.Sprintf("accumulate bucket %d", bucket) })
	a.computes(ns, trace.Event{Kind: trace.Run, Name: name, Task: trace.Task{Kind: trace.Accumulate, Stage: stage, Micro: micro}})
	return true
}

// merge begins to merge a bucket over devices. It tells whether the list goes on at once.
func (a *actor) merge(in schedule.Instr) bool {
	b := a.lists.Buckets[in.Bucket]
	op, bytes, calls := a.run.merge(b)
	if len(calls) == 0 {
		if b.How != ir.Mean || a.lists.Local.MicroBatches == 1 || len(a.lists.Ranks) > 1 {
			return true
		}
		a.computes(moves(a.device, b.Bytes(), b.Bytes()), trace.Event{Kind: trace.Launch, Name: a.bucket(in.Bucket)})
		return false // the sum over micro-batches became their mean
	}
	channel := in.Bucket % a.o.Communicators
	start, index := a.now, a.next
	then := func() {
		begun := a.now
		over := a.meet(meetingKey{nil, a.place, index}, a.run.place(a.place), a.lane(laneKey{nil, a.place, channel, b.Terms && !b.Parts}), a.merges(a.place, b.Terms && !b.Parts, b.Worker), calls)
		a.merging[in.Bucket] = over
		over.then(func() { a.communicated(1+channel, op, a.bucket(in.Bucket), begun, bytes) })
	}
	if !b.Parts {
		then()
		return true
	}
	a.start(moves(a.device, b.Bytes(), b.Bytes()), a.cores, func() { // they are laid out by model replica
		a.did(trace.Event{Kind: trace.Launch, Op: op, Name: a.bucket(in.Bucket)}, start)
		then()
		a.step()
	})
	return false
}

// wait waits for a bucket. Of one in parts, what came is added to what came of other micro-batches; or devices add up their terms.
func (a *actor) wait(in schedule.Instr) {
	b := a.lists.Buckets[in.Bucket]
	start := a.now
	name := a.bucket(in.Bucket)
	if b.Parts && in.Micro == schedule.Once {
		_, outs := b.Values()
		var calls []call
		for _, v := range outs {
			calls = append(calls, call{cost.AllReduce, v.Bytes()})
		}
		a.meet(meetingKey{a.class, a.place, a.next}, a.class.actors[a.place], a.lane(laneKey{a.class, a.place, in.Bucket % a.o.Communicators, true}), a.exchanges(a.class, a.place), calls).then(func() {
			a.did(trace.Event{Kind: trace.Wait, Op: ir.AllReduceOf.String(), Name: name}, start)
			a.communicated(1+in.Bucket%a.o.Communicators, ir.AllReduceOf.String(), name, start, bytesOf(calls))
			a.step()
		})
		return
	}
	op, _, _ := a.run.merge(b)
	over := a.merging[in.Bucket]
	delete(a.merging, in.Bucket)
	over.then(func() {
		a.did(trace.Event{Kind: trace.Wait, Op: op, Name: name}, start)
		_, outs := b.Values()
		bytes := int64(0)
		for _, v := range outs {
			bytes += v.Bytes()
		}
		if !b.Parts || !a.accumulate(in.Bucket, in.Micro, bytes) {
			a.after(0, a.step)
		}
	})
}

// exchange does a collective with the other devices of the place; with those of other model replicas it only begins one.
func (a *actor) exchange(in schedule.Instr) bool {
	axis, how := in.Op.Change()
	var calls []call
	var bytes int64
	for _, op := range in.Ops() { // between workers each of a call's buffers has a journey of its own
		calls = append(calls, exchange(how, op.Inputs[0], op.Outputs[0]))
		bytes += op.Outputs[0].Bytes()
	}
	start, name := a.now, a.name(in.Exchanged)
	if axis == ir.Replicas {
		if len(a.lists.Ranks) == 1 {
			return true
		}
		over := a.meet(meetingKey{nil, a.place, a.next}, a.run.place(a.place), a.lane(laneKey{nil, a.place, -1, false}), a.merges(a.place, false, false), calls)
		for _, op := range in.Ops() {
			a.coming[schedule.Slot{Value: op.Outputs[0], Micro: in.Micro}] = &coming{over, how.String()}
		}
		over.then(func() { a.communicated(a.exchangeLane(), how.String(), name, start, bytes) })
		return true
	}
	a.meet(meetingKey{a.class, a.place, a.next}, a.class.actors[a.place], a.lane(laneKey{a.class, a.place, -1, true}), a.exchanges(a.class, a.place), calls).then(func() {
		a.did(trace.Event{Kind: trace.Wait, Op: how.String(), Name: name}, start)
		a.communicated(a.exchangeLane(), how.String(), name, start, bytesOf(calls))
		a.step()
	})
	return false
}

// copies moves a variable between host and device, beside what the device does.
func (a *actor) copies(v *ir.Value, op string, then func()) {
	start := a.now
	a.start(moves(a.device, v.Bytes(), v.Bytes()), nil, func() {
		a.communicated(a.hostLane(), op, a.name(v.String), start, v.Bytes())
		a.travelled(start)
		then()
	})
}

// finish waits for all that is on its way, to this device and from it.
func (a *actor) finish() {
	for slot, c := range a.coming {
		delete(a.coming, slot)
		if !c.over {
			c.then(a.step) // one after the other, in any order: it ends with the last
			return
		}
	}
	start := a.now
	for len(a.sends) > 0 {
		s := a.sends[0]
		a.sends = a.sends[1:]
		if !s.over {
			s.then(func() {
				a.did(trace.Event{Kind: trace.Wait, Op: "send", Name: "all that was sent"}, start)
				a.step()
			})
			return
		}
	}
	a.over, a.end = true, a.now
}
