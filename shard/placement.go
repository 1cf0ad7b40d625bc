package shard

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Kind is the kind of a placement.
type Kind uint8

// The kinds of placements.
const (
	Replicated Kind = iota // every device has the whole value
	Sharded                // every device has some rows of a dim
	Partial                // every device has a term: their reduction is the value
)

var kindNames = [...]string{"replicated", "sharded", "partial"}

// MarshalText writes kinds as words into files.
func (k Kind) MarshalText() ([]byte, error) { return []byte(kindNames[k]), nil }

// UnmarshalText reads them.
func (k *Kind) UnmarshalText(text []byte) error {
	i := slices.Index(kindNames[:], string(text))
	if i < 0 {
		return errors.Errorf("%q is no kind of placement: it is one of %q", text, kindNames)
	}
	*k = Kind(i)
	return nil
}

// Placement says how the devices of a stage hold a value. It is comparable; the zero Placement is Replicated.
type Placement struct {
	Kind Kind `json:"kind"`
	Dim  int  `json:"dim"` // of Sharded
	// Unit, of Sharded, is how many rows stay together. What the devices get differs by one unit at most, and the first
	// ones get more: 10 rows over 4 devices are 3, 3, 2, 2. A batch of 10 sentences of 7 tokens that was reshaped to 70
	// tokens is sharded in units of 7.
	Unit   int          `json:"unit"`
	Reduce ir.Reduction `json:"reduce,omitempty"` // of Partial
}

// shardOf is the placement of a value that is sharded along a dim.
func shardOf(dim, unit int) Placement { return Placement{Kind: Sharded, Dim: dim, Unit: unit} }

// partialOf is the placement of a value that must still be reduced.
func partialOf(r ir.Reduction) Placement { return Placement{Kind: Partial, Reduce: r} }

// String prints the placement, as "sharded(0)", "sharded(0 by 7)" or "partial(sum)".
func (p Placement) String() string {
	switch {
	case p.Kind == Partial:
		return fmt.Sprintf("partial(%s)", p.Reduce)
	case p.Kind == Replicated:
		return "replicated"
	case p.Unit == 1:
		return fmt.Sprintf("sharded(%d)", p.Dim)
	}
	return fmt.Sprintf("sharded(%d by %d)", p.Dim, p.Unit)
}

// fits tells whether each of k devices gets something of n rows in units.
func fits(n, unit, k int) bool { return unit > 0 && n%unit == 0 && n/unit >= k }

// sizes are the rows of each of k devices, of n in units.
func sizes(n, unit, k int) []int {
	r := make([]int, k)
	for j := range r {
		r[j] = n / unit / k * unit
		if j < n/unit%k {
			r[j] += unit
		}
	}
	return r
}

// rows are those of device j of k, as a range, of a value of the given shape.
func (p Placement) rows(s shapes.Shape, j, k int) (from, to int) {
	for i, n := range sizes(s.Dimensions[p.Dim], p.Unit, k) {
		from, to = to, to+n
		if i == j {
			break
		}
	}
	return from, to
}

// local is the shape of what device j of k has of a value.
func (p Placement) local(s shapes.Shape, j, k int) shapes.Shape {
	if p.Kind != Sharded {
		return s
	}
	from, to := p.rows(s, j, k)
	s = s.Clone()
	s.Dimensions[p.Dim] = to - from
	return s
}

// same tells whether two placements of a value of shape s over k devices are the same thing. Other units may give the same
// rows: all do that divide what each device has, if all have as much.
func (p Placement) same(q Placement, s shapes.Shape, k int) bool {
	if p == q {
		return true
	}
	if p.Kind != Sharded || q.Kind != Sharded || p.Dim != q.Dim {
		return false
	}
	n := s.Dimensions[p.Dim]
	return n%k == 0 && n/k%p.Unit == 0 && n/k%q.Unit == 0
}
