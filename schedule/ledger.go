// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/ir"
)

// Use says what memory is for.
type Use uint8

// What memory is for.
const (
	ForWeights       Use = iota // variables that are trained
	ForOptimizer                // what the optimizer keeps for them
	ForState                    // other variables: averages, metrics, counters
	ForGradients                // of variables
	ForActivations              // data, and what forward computes and is needed after it or in another segment
	ForTemporaries              // all else that is computed on the way
	ForCommunication            // copies that values travel in
	numUses
)

var useNames = [numUses]string{"weights", "optimizer state", "other state", "gradients", "activations", "temporaries", "communication"}

// String returns the words that people see.
func (u Use) String() string { return useNames[u] }

// Uses are all there are, in the order of tables.
func Uses() (all []Use) {
	for u := range numUses {
		all = append(all, u)
	}
	return all
}

// Bytes are counted by what they are for. Indexed by Use.
type Bytes [numUses]int64

// Total is the sum.
func (b Bytes) Total() (n int64) {
	for _, x := range b {
		n += x
	}
	return n
}

// Map gives the counts that are not zero names, for those who do not know this package.
func (b Bytes) Map() map[string]int64 {
	m := map[string]int64{}
	for u, n := range b {
		if n != 0 {
			m[Use(u).String()] = n
		}
	}
	return m
}

// String lists what there is, largest first.
func (b Bytes) String() string {
	all := slices.DeleteFunc(Uses(), func(u Use) bool { return b[u] <= 0 })
	slices.SortStableFunc(all, func(x, y Use) int { return cmp.Compare(b[y], b[x]) })
	var words []string
	for _, u := range all {
		words = append(words, fmt.Sprintf("%s %s", u, humanize.Bytes(b[u])))
	}
	return strings.Join(words, ", ")
}

// Plus is the sum of both.
func (b Bytes) Plus(x Bytes) Bytes {
	for u := range x {
		b[u] += x[u]
	}
	return b
}

// times are so many times as much.
func (b Bytes) times(n int64) Bytes {
	for u := range b {
		b[u] *= n
	}
	return b
}

func (b *Bytes) raise(x Bytes) {
	for u := range x {
		b[u] = max(b[u], x[u])
	}
}

// Books count what lives on a device. The account of a plan and the meter of a running step keep the same.
type Books struct {
	Live Bytes
	Peak Bytes // what lived when most did
	Most Bytes // the most of each use, whenever that was
}

// Add puts bytes on the books, or takes them off if they are negative. It tells whether more live than ever before.
func (b *Books) Add(u Use, bytes int64) (peak bool) {
	if b.Live[u] += bytes; bytes <= 0 {
		return false
	}
	b.Most[u] = max(b.Most[u], b.Live[u])
	if peak = b.Live.Total() > b.Peak.Total(); peak {
		b.Peak = b.Live
	}
	return peak
}

// During notes what is needed for a moment beyond what lives.
func (b *Books) During(n Need) (peak bool) {
	now := b.Live.Plus(n.Peak)
	b.Most.raise(b.Live.Plus(n.Most))
	if peak = now.Total() > b.Peak.Total(); peak {
		b.Peak = now
	}
	return peak
}

// Ledger knows what the values of a program are for.
type Ledger struct {
	use      map[*ir.Value]Use
	backward map[*ir.Value]bool // backward reads it
	// position is the one of its place whose parts of values count, if divided; else the largest parts count.
	position int
	divided  bool
}

// size is how many bytes a device has of a value that lives between segments.
func (l *Ledger) size(v *ir.Value) int64 {
	if !l.divided || v.Devices(ir.Model) <= l.position || v.Shape.IsDynamic() {
		return v.Bytes()
	}
	return v.LocalShape(ir.Coordinates{0, l.position}).ByteSize()
}

// NewLedger reads a program as it runs.
func NewLedger(p *ir.Program) *Ledger {
	n := len(p.Main.Ops)
	l := &Ledger{use: map[*ir.Value]Use{}, backward: make(map[*ir.Value]bool, n)}
	trained := make(map[*ir.Op]bool, n) // apply ops that read gradients, directly or not
	for _, op := range p.Main.Ops {
		op.Uses(func(v *ir.Value) {
			switch op.Phase {
			case ir.Backward:
				l.backward[v] = true
			case ir.Apply:
				trained[op] = trained[op] || v.Op.Phase == ir.Backward || trained[v.Op]
			}
		})
	}
	for _, x := range p.Variables {
		use := ForState
		switch {
		case x.Trainable:
			use = ForWeights
		case x.Update != nil && trained[x.Update.Op]:
			use = ForOptimizer
		}
		l.set(use, x.Param, x.Update)
	}
	l.set(ForActivations, p.Inputs...)
	for _, g := range p.Gradients {
		l.set(ForGradients, g.Value)
	}
	for _, op := range p.Main.Ops {
		switch {
		case op.IsMerge() && op.Phase == ir.Backward:
			l.set(ForGradients, op.Inputs...)
			l.set(ForGradients, op.Outputs...)
		case op.IsExchange():
			if use, ok := l.use[op.Inputs[0]]; ok && use != ForActivations { // parts of it, put together elsewhere
				l.set(use, op.Outputs...)
			}
		}
	}
	return l
}

// set says what values are for, unless that is known. Constants are nobody's.
func (l *Ledger) set(use Use, vs ...*ir.Value) {
	for _, v := range vs {
		if v == nil {
			continue
		}
		_, isConst := v.Op.Attrs.(*ir.Constant)
		if _, known := l.use[v]; !known && !isConst {
			l.use[v] = use
		}
	}
}

// Use is what a value is for that lives between segments.
func (l *Ledger) Use(v *ir.Value) Use {
	if use, ok := l.use[v]; ok {
		return use
	}
	if v.Op.Phase == ir.Forward && !v.Op.IsLeaf() {
		return ForActivations
	}
	return ForTemporaries
}

// bytes are those of a value that lives between segments.
func (l *Ledger) bytes(v *ir.Value) (b Bytes) {
	b[l.Use(v)] = l.size(v)
	return b
}

// within is what a value is for inside of the segment that computes it: an activation only if it is needed after forward.
func (l *Ledger) within(v *ir.Value, leaves bool) Use {
	use := l.Use(v)
	if use == ForActivations && !l.backward[v] && !leaves {
		return ForTemporaries
	}
	return use
}
