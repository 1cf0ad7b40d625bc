package plan

import (
	"slices"
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// chain is a program in one line. Each live forward op of the model has a position of its own; every other op, backward
// ones above all, shares the position of the forward op that it belongs to, so that a cut of the line cuts everything.
// Values of forward flow to higher positions, gradients to lower ones.
type chain struct {
	*view
	machine cost.Machine
	ops     []*ir.Op       // the forward ops, by position
	at      map[*ir.Op]int // the positions of all ops but parameters, constants and apply

	time    []time.Duration // sums up to a position, of all phases but apply
	costly  []int           // how many ops up to a position compute something
	sends   []*sending      // what may cross
	fetches [][]*sending    // by position: those read there that come from lower positions
	returns [][]*sending    // by position: those read there that come from higher positions
	sources [][]*sending    // by position: those made there that lower positions read
}

func chainOf(p *ir.Program, m cost.Machine) *chain {
	c := &chain{view: viewOf(p), machine: m, at: map[*ir.Op]int{}}
	var model, later, backward []*ir.Op
	optimized := false
	for _, op := range p.Main.Ops {
		optimized = optimized || op.Phase != ir.Forward
		switch {
		case op.IsLeaf() || op.Phase == ir.Apply:
		case op.Phase == ir.Backward:
			backward = append(backward, op)
		case !optimized && c.live[op]:
			model = append(model, op)
		default:
			later = append(later, op)
		}
	}
	c.ops = c.sink(model, backward)
	for i, op := range c.ops {
		c.at[op] = i
	}
	c.follow(later)
	c.goBack(backward)
	c.measure()
	return c
}

// sink moves light ops that depend on parameters and constants only (masks, one-hot labels, position ids) in front of
// the first op that reads them, unless their inputs are larger than what they make of them: then less crosses a cut
// between the two.
func (c *chain) sink(model, backward []*ir.Op) []*ir.Op {
	sinks := map[*ir.Op]bool{}
	for _, op := range model {
		sinks[op] = c.sinks(op, sinks)
	}
	needs := map[*ir.Op][]*ir.Op{} // what the gradient of a forward op reads must be there when that op is done
	for _, b := range backward {
		if !c.live[b] || b.Of == nil {
			continue
		}
		if f := c.runs(b.Of.Op); f != nil {
			c.uses(b, func(v *ir.Value) {
				if v.Op != f && sinks[v.Op] {
					needs[f] = append(needs[f], v.Op)
				}
			})
		}
	}
	var order []*ir.Op
	done := map[*ir.Op]bool{}
	var put func(op *ir.Op)
	put = func(op *ir.Op) {
		if done[op] {
			return
		}
		done[op] = true
		pull := func(x *ir.Op) {
			if sinks[x] {
				put(x)
			}
		}
		c.uses(op, func(v *ir.Value) { pull(v.Op) })
		for _, x := range needs[op] {
			pull(x)
		}
		order = append(order, op)
	}
	for _, op := range model {
		if !sinks[op] {
			put(op)
		}
	}
	for _, op := range model {
		put(op)
	}
	return order
}

func (c *chain) sinks(op *ir.Op, sinks map[*ir.Op]bool) bool {
	if !cost.Light(op) || len(op.Outputs) != 1 {
		return false
	}
	ok, read := true, int64(0)
	seen := map[*ir.Value]bool{}
	c.uses(op, func(v *ir.Value) {
		_, isConst := v.Op.Attrs.(*ir.Constant)
		ok = ok && (v.Op.IsLeaf() || sinks[v.Op])
		if !isConst && !seen[v] {
			seen[v] = true
			read += v.Bytes()
		}
	})
	return ok && op.Outputs[0].Bytes() >= read
}

// follow places forward ops that are not of the model: what is dead where it can be computed first, and metrics, which
// are recorded after the optimizer, with the last of what they read, or at the end if that is nothing.
func (c *chain) follow(later []*ir.Op) {
	for _, op := range later {
		if r := c.runs(op); r != nil && r != op {
			if at, ok := c.at[r]; ok {
				c.at[op] = at
				continue
			}
		}
		at := -1
		c.uses(op, func(v *ir.Value) {
			if x, ok := c.at[v.Op]; ok {
				at = max(at, x)
			}
		})
		if at < 0 && c.live[op] {
			at = len(c.ops) - 1
		}
		c.at[op] = max(at, 0)
	}
}

// goBack places backward ops. One that belongs to a forward op goes there; a sum of gradients goes to the lowest of its
// inputs, because that is the way gradients flow; what only prepares numbers for gradients goes to the highest of its
// users.
func (c *chain) goBack(backward []*ir.Op) {
	gradient := map[*ir.Op]bool{}
	for _, op := range backward {
		lowest := -1
		c.uses(op, func(v *ir.Value) {
			if gradient[v.Op] && (lowest < 0 || c.at[v.Op] < lowest) {
				lowest = c.at[v.Op]
			}
		})
		home, known := 0, op.Of != nil
		if known {
			home, known = c.at[op.Of.Op]
		}
		remat := op.Origin == ir.Rematerialised
		gradient[op] = !remat && (known || lowest >= 0)
		switch {
		case known && (remat || lowest < 0 || home <= lowest):
			c.at[op] = home
		case lowest >= 0:
			c.at[op] = lowest
		}
	}
	highest := map[*ir.Op]int{} // of users
	for _, op := range slices.Backward(backward) {
		if _, ok := c.at[op]; !ok {
			c.at[op] = highest[op]
		}
		c.uses(op, func(v *ir.Value) { highest[v.Op] = max(highest[v.Op], c.at[op]) })
	}
}

// measure sums up what the ops at each position cost.
func (c *chain) measure() {
	c.time = make([]time.Duration, len(c.ops)+1)
	c.costly = make([]int, len(c.ops)+1)
	for op, at := range c.at {
		if c.live[op] {
			c.time[at+1] += c.machine.Time(op)
		}
	}
	for i, op := range c.ops {
		c.time[i+1] += c.time[i]
		c.costly[i+1] = c.costly[i]
		if cost.Of(op).Flops > 0 {
			c.costly[i+1]++
		}
	}
	c.findSends()
}

// repeats finds the blocks that the chain repeats.
func (c *chain) repeats() []analysis.Run {
	return analysis.Line{Ops: c.ops, Time: c.time, Crossing: c.crossing()}.Blocks()
}

// crossing is how many bytes go from one side of each position to the other, both ways.
func (c *chain) crossing() []int64 {
	bytes := make([]int64, len(c.ops)+1)
	for _, s := range c.sends {
		lo, hi := min(s.from, s.to[0]), max(s.from, slices.Max(s.to))
		bytes[lo+1] += s.bytes
		if hi+1 < len(bytes) {
			bytes[hi+1] -= s.bytes
		}
	}
	for i := range bytes[1:] {
		bytes[i+1] += bytes[i]
	}
	return bytes
}

// betweenBlocks are the positions at which the chain may be cut without cutting a block.
func (c *chain) betweenBlocks(runs []analysis.Run) []bool {
	may := c.anywhere()
	for _, r := range runs {
		for i := r.Start; i < r.End(); i++ {
			may[i] = (i-r.Start)%r.Size == 0
		}
	}
	return may
}

func (c *chain) anywhere() []bool { return slices.Repeat([]bool{true}, len(c.ops)+1) }
