// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package emit

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/ir"
)

// Planner is a [Compiler] that can tell what it would make of a segment, without making it.
type Planner interface {
	Plan(s *ir.Segment) (*Listing, error)
}

// Watched is an executable that can tell what its steps do while it runs.
type Watched interface {
	// ExecuteWatched is Execute; did is called after each step, with when it began and ended.
	ExecuteWatched(inputs []compute.Buffer, donate []bool, device compute.DeviceNum, did func(s Step, start, end time.Time)) ([]compute.Buffer, error)
}

// Yielding is an executable whose donated inputs somebody may still read.
type Yielding interface {
	// ExecuteYielding is Execute; yours is called, at least once, before it overwrites or frees an input. It tells whether nobody else reads that, and does not
	// change its mind: an input that is not the executable's stays as it is, and is the caller's again.
	ExecuteYielding(inputs []compute.Buffer, donate []bool, device compute.DeviceNum, yours func(input int) bool) ([]compute.Buffer, error)
}

// Listing is what a segment was compiled into: for people, and for the account of memory.
type Listing struct {
	Segment string
	Ops     int    // of the segment
	Level   string // the instruction set of the kernels
	Steps   []Step // which run one after the other
	// Arena is the memory of intermediate tensors, in bytes. Segments that run one after the other share theirs.
	Arena int64
	// Outside is what else lives while the segment runs: results of another backend, and copies for it.
	Outside int64
	// Over is, for every output, the input whose memory it takes if the segment is given that to keep; -1: none.
	Over []int
	// Lives are the tensors in the arena.
	Lives []Life
}

// Life is a range of the arena that a value has from one step to another.
type Life struct {
	Value    *ir.Value // nil: it is no tensor's
	Bytes    int64
	From, To int
}

// The kinds of steps.
const (
	Group       = "group" // of fused ops
	Product     = "product"
	Convolution = "convolution"
	Native      = "op" // with a loop of its own
	Fallback    = "fallback"
)

// Kinds are the kinds of steps, in the order of tables.
var Kinds = []string{Group, Product, Convolution, Native, Fallback}

// Step is something that the threads of a device do together.
type Step struct {
	Kind   string
	Number int // steps of the same number run at the same time
	What   string
	Size   string // of what it loops over: "64×512"; of a product rows×columns×depth
	Kernel string // "12x32"
	Ops    int    // of the program, or made of them
	// Flops are counted of products and convolutions only: others are bound by memory.
	Flops         int64
	Read, Written int64 // bytes of tensors
	Copied        int64 // bytes that are copied for another backend
	// Why says why another backend runs it.
	Why string
	// Together is how many steps of the kind this stands for, where several are looked at as one.
	Together int
	// Then is the ops of the group that is done with each part of a product, where they are looked at as one.
	Then string
	// Phase is that of most of it, where a segment has several: "backward".
	Phase string
	// Sites are where in the model it comes from; those that have most of it come first.
	Sites []Site
}

// String says what the step does, in a few words.
func (s Step) String() string {
	if s.Together > 1 {
		return fmt.Sprintf("%d groups of %d ops", s.Together, s.Ops)
	}
	text := s.What + " " + s.Size
	if s.Kernel != "" {
		text += ", kernel " + s.Kernel
	}
	if s.Then != "" {
		text += ", then " + s.Then
	}
	return text
}

// Sum adds up the steps of a kind; all, if it is "".
func (l *Listing) Sum(kind string) (n int, sum Step) {
	for _, s := range l.Steps {
		if kind != "" && s.Kind != kind {
			continue
		}
		n++
		sum.Ops += s.Ops
		sum.Flops += s.Flops
		sum.Read += s.Read
		sum.Written += s.Written
		sum.Copied += s.Copied
	}
	return n, sum
}

// InPlace is how many outputs take the memory of an input.
func (l *Listing) InPlace() (n int) {
	for _, i := range l.Over {
		if i >= 0 {
			n++
		}
	}
	return n
}

// String lists the steps.
func (l *Listing) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "segment %q: %d ops in %d steps, kernels %s, arena %s, %d of %d outputs in place\n",
		l.Segment, l.Ops, len(l.Steps), l.Level, humanize.Bytes(l.Arena), l.InPlace(), len(l.Over))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "#\tkind\tsize\tkernel\tMFLOP\treads\twrites\tops")
	for _, s := range l.Steps {
		flops := "-"
		if s.Flops > 0 {
			flops = fmt.Sprintf("%.3f", float64(s.Flops)/1e6)
		}
		kernel := s.Kernel
		if kernel == "" {
			kernel = "-"
		}
		what := s.What
		if s.Kind == Fallback {
			what += fmt.Sprintf(": %s; copies %s", s.Why, humanize.Bytes(s.Copied))
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Number, s.Kind, s.Size, kernel, flops, humanize.Bytes(s.Read), humanize.Bytes(s.Written), what)
	}
	_ = w.Flush()
	return b.String()
}
