package schedule

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/schedule/play"
)

// Check proves an order, whoever made it: every task is in it once, on its group; no group waits forever, if what is
// sent can be kept until it is received; and no group holds more than [Pipeline.InFlight].
func (p Pipeline) Check(order [][]Task) error {
	if err := p.validate(); err != nil {
		return err
	}
	return errors.WithMessagef(p.check(order), "epl: internal error: order of %s with %d stages on %d groups and %d micro-batches",
		p.Strategy, p.Stages, p.Groups, p.Micro)
}

func (p Pipeline) check(order [][]Task) error {
	if len(order) != p.Groups {
		return errors.Errorf("it has %d groups", len(order))
	}
	last := BackwardTask // of a micro-batch on a stage
	if p.Strategy == ZeroBubble {
		last = WeightsTask
	}
	seen := map[Task]bool{}
	for g, l := range order {
		held := 0
		for _, t := range l {
			switch {
			case t.Kind > last || t.Stage < 0 || t.Stage >= p.Stages || t.Stage%p.Groups != g || t.Micro < 0 || t.Micro >= p.Micro:
				return errors.Errorf("%s of stage %d has no place on group %d", t, t.Stage, g)
			case seen[t]:
				return errors.Errorf("%s of stage %d is there twice", t, t.Stage)
			}
			seen[t] = true
			if t.Kind == ForwardTask {
				held++
			}
			if held > p.InFlight(g) {
				return errors.Errorf("group %d holds %d micro-batches at %s of stage %d, where %d are promised", g, held, t, t.Stage, p.InFlight(g))
			}
			if t.Kind == last {
				held--
			}
		}
	}
	for s := range p.Stages {
		for m := range p.Micro {
			for kind := ForwardTask; kind <= last; kind++ {
				if t := (Task{kind, s, m}); !seen[t] {
					return errors.Errorf("%s of stage %d is missing", t, s)
				}
			}
		}
	}
	return p.play(order, func(int, Task) {})
}

// needs are the tasks whose results a task reads.
func (p Pipeline) needs(t Task) []Task {
	switch {
	case t.Kind == WeightsTask:
		return []Task{{BackwardTask, t.Stage, t.Micro}}
	case t.Kind == BackwardTask && t.Stage < p.Stages-1:
		return []Task{{ForwardTask, t.Stage, t.Micro}, {BackwardTask, t.Stage + 1, t.Micro}}
	case t.Kind == BackwardTask:
		return []Task{{ForwardTask, t.Stage, t.Micro}}
	case t.Stage > 0:
		return []Task{{ForwardTask, t.Stage - 1, t.Micro}}
	}
	return nil
}

// play plays an order: a task is an event, which others wait for. do sees each.
func (p Pipeline) play(order [][]Task, do func(group int, t Task)) error {
	stops, _ := play.Play(order, func(t Task) (needs, tells []Task) { return p.needs(t), []Task{t} }, func(g, at int) error {
		do(g, order[g][at])
		return nil
	})
	for _, x := range stops {
		t := order[x.List][x.At]
		return errors.Errorf("group %d cannot run %s of stage %d: it waits forever for %s of stage %d", x.List, t, t.Stage, x.For, x.For.Stage)
	}
	return nil
}

// Slots is how long an order takes if a forward of a stage takes f, a backward b and a weight half w, and transfers
// nothing; and how long each group idles in that time. The order must pass [Pipeline.Check].
func (p Pipeline) Slots(order [][]Task, f, b, w float64) (total float64, idle []float64) {
	times := [...]float64{ForwardTask: f, BackwardTask: b, WeightsTask: w}
	now, idle, done := make([]float64, len(order)), make([]float64, len(order)), map[Task]float64{}
	if err := p.play(order, func(g int, t Task) {
		for _, n := range p.needs(t) {
			now[g] = max(now[g], done[n])
		}
		now[g] += times[t.Kind]
		idle[g] -= times[t.Kind]
		done[t] = now[g]
	}); err != nil {
		panic(errors.WithMessage(err, "epl: internal error: an order that was not checked"))
	}
	total = slices.Max(now)
	for g := range idle {
		idle[g] += total
	}
	return total, idle
}
