package shard

import (
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
)

// Estimator tells what programs would cost that are partitioned by one choice or another. It reads the program once, and does
// not change it. It estimates one choice at a time.
type Estimator struct{ x *problem }

// Cost is what a step costs.
type Cost struct {
	// Exchanges are those between devices of a stage, by phase: of one instance in forward and backward, and of the whole step
	// in apply, with the merges of gradients that several devices have terms of, which go together and count as one.
	Exchanges [ir.Apply + 1]Moved
	Flops     int64 // of the device that has most to do, for one instance and apply
	Bytes     int64 // that it reads and writes
	Variables int64 // bytes of variables that a device has at most
	Gathered  int   // how often variables are gathered, which they should not
}

// Moved are exchanges.
type Moved struct {
	Count int
	Bytes int64                        // that a device sends
	Of    [ir.AllToAllOf + 1]Exchanges // by collective
}

func (m *Moved) add(how ir.Collective, bytes int64) {
	m.Count++
	m.Bytes += bytes
	m.Of[how].Count++
	m.Of[how].Bytes += bytes
}

// NewEstimator reads a program with stages.
func NewEstimator(p *ir.Program) (*Estimator, error) {
	x, err := newProblem(p)
	if err != nil {
		return nil, err
	}
	return &Estimator{x}, nil
}

// Estimate is what a program costs, if variables are sharded as chosen.
func (e *Estimator) Estimate(choice Choice) (Cost, error) {
	vars, err := e.x.shard(choice)
	if err != nil {
		return Cost{}, err
	}
	return e.x.count(e.x.propagate(vars), vars), nil
}

// Time is how long a machine takes for a step of so many micro-batches. Time is not saved by doing several things at once.
func (c Cost) Time(m cost.Machine, microBatches int) time.Duration {
	seconds := max(float64(c.Flops)/m.FlopsPerSecond, float64(c.Bytes)/m.BytesPerSecond)
	total := float64(microBatches) * seconds
	for phase, x := range c.Exchanges {
		n := microBatches
		if ir.Phase(phase) == ir.Apply {
			n = 1
		}
		total += float64(n) * (float64(x.Count)*m.LinkLatency.Seconds() + float64(x.Bytes)/m.LinkBytesPerSecond)
	}
	return time.Duration(total * float64(time.Second))
}

// count adds up what the steps of a plan cost.
func (x *problem) count(todo *plan, vars *sharding) (c Cost) {
	type load struct{ flops, bytes, variables int64 }
	loads, merges := map[*group]*load{}, 0
	at := func(g *group) *load {
		if loads[g] == nil {
			loads[g] = &load{}
		}
		return loads[g]
	}
	for _, s := range todo.steps {
		k := int64(len(s.g.places))
		l := at(s.g)
		for _, h := range s.out {
			l.bytes += x.localBytes(h)
		}
		for _, h := range s.in {
			if h != nil {
				l.bytes += x.localBytes(h)
			}
		}
		if s.kind == opStep {
			l.flops += s.flops()
			s.inside(func(how ir.Collective, bytes int64) {
				sent := bytes * (k - 1) / k
				if how == ir.AllReduceOf {
					sent *= 2
				}
				c.Exchanges[s.phase].add(how, sent)
			})
			if _, ok := s.task.op.Attrs.(*ir.Merge); ok && s.s.in[0].Kind == Partial {
				once := &c.Exchanges[ir.Apply]
				once.add(ir.AllReduceOf, 2*x.values[s.out[0].value].bytes*(k-1)/k)
				if merges++; merges > 1 {
					once.Count, once.Of[ir.AllReduceOf].Count = once.Count-1, once.Of[ir.AllReduceOf].Count-1
				}
			}
			continue
		}
		n := x.values[s.out[0].value].bytes * (k - 1) / k
		phase := s.phase
		if !x.values[s.out[0].value].v.Op.Varying && x.p.Local != nil && phase == ir.Backward {
			phase = ir.Apply // of a merged value: once per step
		}
		switch s.kind {
		case reduceStep:
			c.Exchanges[phase].add(ir.AllReduceOf, 2*n)
		case scatterStep, gatherStep:
			c.Exchanges[phase].add(s.kind.collective(), n)
		case turnStep:
			c.Exchanges[phase].add(ir.AllToAllOf, n/k)
		}
		if s.kind == gatherStep && x.values[s.out[0].value].weight {
			c.Gathered++
		}
	}
	for _, v := range x.p.Variables {
		if g := x.of[v.TaskGraph]; g != nil {
			at(g).variables += x.localBytes(&held{Placement: vars.of(v), value: x.number[v.Param], g: g})
		}
	}
	for _, l := range loads {
		c.Flops, c.Bytes, c.Variables = max(c.Flops, l.flops), max(c.Bytes, l.bytes), max(c.Variables, l.variables)
	}
	return c
}

// localBytes is how much the first device has of a value: none has more.
func (x *problem) localBytes(h *held) int64 {
	v := &x.values[h.value]
	if h.Kind != Sharded {
		return v.bytes
	}
	n := dims(v.v)[h.Dim]
	return v.bytes / int64(n) * int64(most(n, h.Unit, len(h.g.places)))
}

// flops are the operations of an op on the first device.
func (s *step) flops() int64 {
	f := s.s.factor
	if f == nil {
		return s.task.flops
	}
	return int64(float64(s.task.flops) / float64(f.Size) * float64(most(f.Size, s.s.unit, len(s.g.places))))
}

// most is how many of n rows the first of k devices has.
func most(n, unit, k int) int { return (n/unit + k - 1) / k * unit }
