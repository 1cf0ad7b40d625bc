// Package schedule turns a program with a local view into what each device does in one step: a list of instructions.
//
// What goes in is the program after all passes; what comes out is data: segments cut out of the program, buckets of
// values that are merged together, and one list per device. The runtime executes the lists; [Program.Check] proves
// before the first step that they can be.
package schedule

import (
	"fmt"
	"strings"

	"github.com/easyparallel/epl/ir"
)

// Program is what all devices do in one step.
type Program struct {
	Name  string
	Local ir.Local
	// Segments are the pieces of the program: those that every instance runs, in order, and last the one that runs
	// once per step.
	Segments []*ir.Segment
	Buckets  []Bucket
	Devices  [][]Instr // one list per device; device d is model replica d
}

// Bucket is a group of merges that travel together.
type Bucket struct {
	How    ir.How
	Worker bool // only between the devices of a worker
	Merges []*ir.Op
	// After is the instance segment after which all of them can start.
	After int
}

// Bytes is the size of the bucket on one device.
func (b Bucket) Bytes() int64 {
	var n int64
	for _, m := range b.Merges {
		n += m.Inputs[0].Bytes()
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
	Wait                   // wait until a bucket is merged
	Free                   // let go of values
)

var kindNames = [...]string{"run", "accumulate", "merge", "wait", "free"}

// String returns the word used in the text of a schedule.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", k)
}

// Once is the micro-batch of what happens once per step.
const Once = -1

// Instr is one instruction.
type Instr struct {
	Kind    Kind
	Segment int // of Run
	Bucket  int // of Accumulate, Merge and Wait
	Micro   int // the micro-batch of Run, Accumulate and Free; Once otherwise
	// Frees are the values that nobody needs afterwards. Run may use their memory for its results.
	Frees []*ir.Value
}

// String prints the schedule: equal lists are printed once.
func (p *Program) String() string {
	var w strings.Builder
	fmt.Fprintf(&w, "schedule %q: %d model replicas, %d micro-batches\n", p.Name, p.Local.Replicas, p.Local.MicroBatches)
	for i, s := range p.Segments {
		fmt.Fprintf(&w, "segment %d %s: %d ops, %d inputs, outputs%s\n", i, s.Name, len(s.Ops), len(s.Inputs), values(s.Outputs))
	}
	for i, b := range p.Buckets {
		how := b.How.String()
		if b.Worker {
			how += " within a worker"
		}
		fmt.Fprintf(&w, "bucket %d: %s of %d values, %d bytes, after segment %d:", i, how, len(b.Merges), b.Bytes(), b.After)
		for _, m := range b.Merges {
			fmt.Fprintf(&w, " %s", m.Inputs[0])
		}
		w.WriteString("\n")
	}
	for d := 0; d < len(p.Devices); {
		text := list(p, p.Devices[d])
		last := d
		for last+1 < len(p.Devices) && list(p, p.Devices[last+1]) == text {
			last++
		}
		if last == d {
			fmt.Fprintf(&w, "device %d:\n%s", d, text)
		} else {
			fmt.Fprintf(&w, "devices %d to %d:\n%s", d, last, text)
		}
		d = last + 1
	}
	return w.String()
}

func list(p *Program, instrs []Instr) string {
	var w strings.Builder
	for _, in := range instrs {
		fmt.Fprintf(&w, "  %s", in.Kind)
		switch in.Kind {
		case Run:
			fmt.Fprintf(&w, " %s", p.Segments[in.Segment].Name)
		case Accumulate, Merge, Wait:
			fmt.Fprintf(&w, " bucket %d", in.Bucket)
		}
		if in.Micro != Once {
			fmt.Fprintf(&w, " micro-batch %d", in.Micro)
		}
		if len(in.Frees) > 0 {
			if in.Kind != Free {
				w.WriteString(", frees")
			}
			w.WriteString(values(in.Frees))
		}
		w.WriteString("\n")
	}
	return w.String()
}

func values(vs []*ir.Value) string {
	var w strings.Builder
	for _, v := range vs {
		fmt.Fprintf(&w, " %s", v)
	}
	return w.String()
}
