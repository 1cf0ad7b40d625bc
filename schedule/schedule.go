// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package schedule turns an SPMD program into instruction lists: what the devices of each group do in one step.
//
// What goes in is the program after all passes, and the ranks of the replicas. What comes out is a [Program], as data: segments cut
// out of the program, buckets of values that are merged together, transfers between device groups, and one list per device
// group, the same for all of its devices and all replicas. Its size does not depend on the number of devices.
//
// The runtime executes the lists. Package play plays them without computing: [Program.Check] proves before the first step that no list waits
// forever and no value is missing, and [Program.Account] counts the memory. [Pipeline] orders the tasks of stages, and
// assumes nothing of what they contain.
//
// A device group is called a place here: its index is ir.Op.Place.
package schedule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/easyparallel/epl/ir"
)

// Program is what all devices do in one step. A place is a group of devices of a model replica that run the same stages: they do
// the same, each with what it has of values. All model replicas do the same.
type Program struct {
	Name  string
	Local ir.Local
	// Pipeline is the order in which stages work on micro-batches.
	Pipeline Pipeline
	// Ranks are the devices of each model replica; Groups are those of each place, by their index among them.
	Ranks  [][]int
	Groups [][]int
	// Divisions say how the devices of each place divide values; nil: evenly.
	Divisions []ir.Division
	Segments  []*Segment
	Buckets   []Bucket
	Transfers []Transfer
	Places    [][]Instr // one list per place
	Variables []Variable
	Results   []Result
	Checks    *Checks // nil: the host checks what is to be checked

	homes    map[*ir.Value][]int     // by parameter of a variable: the places that have it
	apart    [][]Instr               // the lists with instructions that add up what segments do; nil: there are none
	gathered map[*ir.Value]bool      // what model replicas gather of variables for a micro-batch
	inPlace  map[*ir.Value]*ir.Value // by the new part of a variable that is updated where it lies: the new value, which has the same memory
}

// Segment is a piece of the program that runs on one place.
type Segment struct {
	*ir.Segment
	Place, Stage int
	Kind         Part
	// Adds is the segment that this one is with additions to sums over micro-batches; nil: it has none.
	Adds *Segment
	// First is the segment as the device of the place runs it that has most of values: the first, if they have equal weights.
	First *ir.Segment
	// Parts are the segment as each device of the place runs it, if they have different weights; else nil.
	Parts []*ir.Segment
	// Owns are the parts of variables that it updates where they lie.
	Owns []Own
	// cut is how many ops and inputs it lost for that. They are in its text: a plan is the same for devices that update in place and for others.
	cut struct{ ops, inputs int }
}

// Alike tells whether two devices of a place have the same to do.
func (p *Program) Alike(place, i, j int) bool {
	w := p.Divisions
	return w == nil || w[place].Weights == nil || w[place].Weights[i] == w[place].Weights[j]
}

// On is the segment as the device at a position of the place runs it, or one that has a little more of values.
func (s *Segment) On(position int) *ir.Segment {
	if s.Parts == nil {
		return s.First
	}
	return s.Parts[position]
}

// Part says what a segment is part of.
type Part string

// The parts of a step.
const (
	Instance Part = "instance" // forward and backward of a program with one stage, where they are not apart
	Forward  Part = "forward"
	Backward Part = "backward"
	Weights  Part = "weights" // the gradients of weights, where they are computed apart
	Apply    Part = "apply"   // once per step
)

// Bucket is a group of merges that travel together.
type Bucket struct {
	How    ir.How
	Worker bool // only between the devices of a worker
	Parts  bool // each model replica gets a part of each value only, in every micro-batch
	Place  int  // of the devices that have the values
	Terms  bool // the devices of the place have terms of the values, which are added up, too
	Merges []*ir.Op
	// After is the segment after which all of them can start.
	After int
	// Summed: segments add the values up over micro-batches. No instruction does.
	Summed bool
	// Inside: a segment that devices run together merges it. No instruction does. Host is why not, though these devices run segments together.
	Inside bool
	Host   string
}

// Bytes is the size of the bucket on one device.
func (b Bucket) Bytes() int64 {
	var n int64
	for _, m := range b.Merges {
		n += m.Inputs[0].Bytes()
	}
	return n
}

// Values are what is merged, and what comes of it.
func (b Bucket) Values() (in, out []*ir.Value) {
	for _, m := range b.Merges {
		in, out = append(in, m.Inputs[0]), append(out, m.Outputs[0])
	}
	return in, out
}

// Transfer is a value that one place sends to another: in every micro-batch, or once per step.
type Transfer struct {
	Value *ir.Value
	// Into is the value as the devices of the other place get it; their placements say who sends what to whom.
	Into     *ir.Value
	From, To int
	Once     bool
	// Input: a data input. The first device, which feeds the model replica, sends it to devices of other workers. What each of
	// them needs of it is Into.
	Input bool
}

// Variable says where a variable lives between steps.
type Variable struct {
	Param  *ir.Value
	Places []int
	// Update is its new value, on all of them; nil if it does not change.
	Update *ir.Value
	// Host: it is in the memory of the host, unless a device is using it.
	Host bool
}

// Result is something that the program returns besides variables.
type Result struct {
	Value *ir.Value
	Place int // where it is, in all model replicas
}

// Devices are those of some places, by their index in a model replica. The nil program has one device at each place.
func (p *Program) Devices(places ...int) (devices []int) {
	for _, place := range places {
		if p == nil {
			devices = append(devices, place)
		} else {
			devices = append(devices, p.Groups[place]...)
		}
	}
	slices.Sort(devices)
	return devices
}

// PlaceOf is the place of a device of a model replica.
func (p *Program) PlaceOf(device int) int {
	return slices.IndexFunc(p.Groups, func(g []int) bool { return slices.Contains(g, device) })
}

// Carries is how many bytes a transfer moves at a time: each device of the place that it goes to gets what it has.
func (p *Program) Carries(t Transfer) int64 {
	if t.Into.On(ir.Model).Kind == ir.Sharded {
		return t.Value.Shape.ByteSize()
	}
	return t.Value.Shape.ByteSize() * int64(len(p.Groups[t.To]))
}

// OnceBytes is how many bytes the devices of a model replica send each other once per step.
func (p *Program) OnceBytes() (n int64) {
	for _, t := range p.Transfers {
		if t.Once {
			n += p.Carries(t)
		}
	}
	return n
}

// Kind says what an instruction does.
type Kind uint8

// The kinds of instructions.
const (
	Run        Kind = iota // run a segment: for the instance of a micro-batch, or once
	Accumulate             // add a bucket's values of a micro-batch to those of the micro-batches before
	Merge                  // start to merge a bucket over the devices
	Wait                   // wait until a bucket is merged; of one in parts, a micro-batch of it, or once, for other places
	Feed                   // get a data input of a micro-batch
	Send                   // give a value to another place, which takes it when it comes to that
	Receive                // take a value of another place
	Exchange               // do a collective with other places
	Load                   // bring a variable to the device
	Store                  // take the new value of a variable to the host
)

var kindNames = [...]string{"run", "accumulate", "merge", "wait", "feed", "send", "receive", "exchange", "load", "store"}

// String returns the word used in the text of a schedule.
func (k Kind) String() string { return kindNames[k] }

// Once is the micro-batch of what happens once per step.
const Once = -1

// Slot is where a value of a micro-batch is kept.
type Slot struct {
	Value *ir.Value
	Micro int // or Once
}

// Instr is one instruction.
type Instr struct {
	Kind     Kind
	Segment  int       // of Run
	Bucket   int       // of Accumulate, Merge and Wait
	Transfer int       // of Send and Receive; of Feed, unless it is on the first place: -1
	Value    *ir.Value // of Feed, Load and Store
	Op       *ir.Op    // of Exchange
	More     []*ir.Op  // of Exchange: what is gathered with it, in one call
	Micro    int       // Once for what happens once
	// In and Out, of Run, are where the segment's inputs and outputs are; nil: where those of the micro-batch are.
	In, Out []Slot
	// Frees are what nobody needs afterwards. Run may use the memory of its inputs among them for its results.
	Frees []Slot
}

// Dies are what is to be freed after an instruction: what nobody needs, without the old value of what it has replaced.
func (in Instr) Dies() (slots []Slot) {
	if in.Out == nil {
		return in.Frees
	}
	for _, at := range in.Frees {
		if !slices.Contains(in.Out, at) || !slices.Contains(in.In, at) {
			slots = append(slots, at)
		}
	}
	return slots
}

// Ops are what an exchange does in one call.
func (in Instr) Ops() []*ir.Op { return append([]*ir.Op{in.Op}, in.More...) }

// Exchanged names what an exchange does.
func (in Instr) Exchanged() string {
	name := in.Op.String()
	for _, op := range in.More {
		name += ", " + op.Outputs[0].String()
	}
	return name
}

// Meets tells whether an instruction of a micro-batch is done with other model replicas: even by one that has no such
// micro-batch in the step.
func (p *Program) Meets(in Instr) bool {
	switch in.Kind {
	case Merge, Wait:
		return p.Buckets[in.Bucket].Parts
	case Exchange:
		axis, _ := in.Op.Change()
		return axis == ir.Replicas
	}
	return false
}

// String prints the schedule.
func (p *Program) String() string {
	var w strings.Builder
	fmt.Fprintf(&w, "schedule %q: %d model replicas, %d micro-batches%s\n", p.Name, p.Local.Replicas, p.Local.MicroBatches, textIf(p.Local.Shares != nil, fmt.Sprintf(", shares %v", p.Local.Shares)))
	if len(p.Places) > 1 {
		fmt.Fprintf(&w, "%d stages, %s; ranks of model replicas %v\n", p.Pipeline.Stages, p.Pipeline.Strategy, p.Ranks)
	}
	for i, s := range p.Segments {
		fmt.Fprintf(&w, "segment %d %s: %d ops, %d inputs, outputs%s\n", i, s.Name, len(s.Ops)+s.cut.ops, len(s.Inputs)+s.cut.inputs, values(s.Outputs))
	}
	for i, b := range p.Buckets {
		in, _ := b.Values()
		fmt.Fprintf(&w, "bucket %d%s: %s%s%s%s of %d values, %d bytes, after segment %d:%s\n", i, textIf(len(p.Places) > 1, fmt.Sprintf(" on %d", b.Place)), b.How,
			textIf(b.Worker, " within a worker"), textIf(b.Parts, ", reduce-scatter,"), textIf(b.Terms, " of terms"), len(b.Merges), b.Bytes(), b.After, values(in))
	}
	for i, t := range p.Transfers {
		what := "value"
		if t.Input {
			what = "input"
		} else if t.Once {
			what = "value, once,"
		}
		fmt.Fprintf(&w, "transfer %d: %s %s of %d bytes from %d to %d\n", i, what, t.Value, t.Value.Bytes(), t.From, t.To)
	}
	if len(p.Places) > 1 {
		for _, v := range p.Variables {
			fmt.Fprintf(&w, "variable %s on %v, updates%s\n", v.Param, v.Places, textIf(v.Update != nil, values(slices.Repeat([]*ir.Value{v.Update}, len(v.Places)))))
		}
		for _, r := range p.Results {
			fmt.Fprintf(&w, "result %s on %d\n", r.Value, r.Place)
		}
	}
	for i, l := range p.Places {
		fmt.Fprintf(&w, "group %d of a model replica:\n", i)
		for _, in := range l {
			w.WriteString("  " + p.Text(in) + textIf(len(in.Frees) > 0, ", frees"))
			for _, f := range in.Frees {
				fmt.Fprintf(&w, " %s", f.Value)
			}
			w.WriteString("\n")
		}
	}
	return w.String()
}

// Text describes an instruction.
func (p *Program) Text(in Instr) string {
	s := in.Kind.String()
	switch in.Kind {
	case Run:
		s += " " + p.Segments[in.Segment].Name
	case Accumulate, Merge, Wait:
		s += fmt.Sprintf(" bucket %d", in.Bucket)
	case Send:
		t := p.Transfers[in.Transfer]
		s += fmt.Sprintf(" %s to %d", t.Value, t.To)
	case Receive:
		t := p.Transfers[in.Transfer]
		s += fmt.Sprintf(" %s from %d", t.Into, t.From)
	case Feed, Load, Store:
		s += fmt.Sprintf(" %s", in.Value)
	case Exchange:
		s += " " + in.Exchanged()
	}
	return s + textIf(in.Micro != Once, fmt.Sprintf(" micro-batch %d", in.Micro))
}

func textIf(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

func values(vs []*ir.Value) string {
	var w strings.Builder
	for _, v := range vs {
		fmt.Fprintf(&w, " %s", v)
	}
	return w.String()
}
