package local

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/schedule"
)

// Devices that can communicate by themselves run segments together: see schedule.Program.Joint.

// jointly makes the lists of such devices; nil: they run what they are given one by one. why says so, by place, where devices could do otherwise.
func jointly(s *schedule.Program, runner *Runner, opts exec.StepOptions) (joint *schedule.Program, why []error) {
	job := runner.Job
	o := schedule.JointOptions{Half: opts.FP16Scale}
	if opts.Alone && job != nil {
		o.First, job = job.First(), nil
	}
	o.Worker = func(rank int) int {
		if job == nil {
			return 0
		}
		return job.WorkerOf(rank)
	}
	o.Can = func(ranks []int) error {
		for _, d := range runner.devices {
			g, ok := d.(emit.Grouper)
			if !ok {
				return errNoGroups
			}
			if s.Local.Shares != nil {
				return errUnequal
			}
			if err := g.CanGroup(ranks); err != nil {
				return err
			}
		}
		return nil
	}
	joint, why = s.Joint(o)
	for place, err := range why {
		if errors.Is(err, errNoGroups) {
			why[place] = nil
		} else if err != nil {
			runner.Notice(fmt.Sprintf("not together %d", place), fmt.Sprintf("epl: program %q: devices of stage group %d communicate through the host, because %v", s.Name, place, err), true)
		}
	}
	return joint, why
}

// Lists implements exec.Grouped.
func (x *stepper) Lists() (*schedule.Program, []error) {
	if x.partial == nil {
		return nil, x.why
	}
	return x.schedule, x.why
}

// Lists implements exec.Grouped: model replicas do the same.
func (a *ahead) Lists() (*schedule.Program, []error) {
	if a.span == nil {
		if g, ok := a.halves[0].Forward.(exec.Grouped); ok {
			return g.Lists()
		}
		return nil, nil
	}
	for _, s := range a.span.steppers {
		if s != nil {
			return s.Lists()
		}
	}
	return nil, nil
}

var (
	errNoGroups = errors.New("the backend has no collectives")
	errUnequal  = errors.New("model replicas have different numbers of micro-batches, and devices that run a segment together all have to run it")
)

// joint visits the executables by which devices wait for each other.
func (x *stepper) joint(visit func(emit.Joint)) {
	x.each(func(e compute.Executable) {
		if j, ok := e.(emit.Joint); ok {
			visit(j)
		}
	})
}

// lacking lets a step that lacks instances be run by lists for that.
func (s *step) lacking() error {
	x := s.stepper
	if x.partial == nil || s.deal.total() == x.schedule.Local.Instances() {
		return nil
	}
	apart, err := x.partial()
	if err != nil {
		return err
	}
	apart.world, apart.count = x.world, x.count
	x.apart, s.stepper = apart, apart
	return nil
}
