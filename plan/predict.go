package plan

import (
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/simulate"
)

// hardware is what the devices can do: usual ones, if nobody said.
func (t Target) hardware() *cost.Cluster {
	if t.Hardware != nil {
		return t.Hardware
	}
	c := &cost.Cluster{Inside: cost.DefaultLink, Between: cost.DefaultLink}
	for _, d := range t.Cluster.Devices() {
		c.Devices = append(c.Devices, cost.Device{Profile: cost.Default, Host: d.Worker, Speed: 1})
	}
	return c
}

// Simulate plays a step of what a plan made of a training program.
func (r *Result) Simulate(t Target, communicators int) (*simulate.Result, error) {
	return r.simulate(t, simulate.Options{Communicators: communicators})
}

func (r *Result) simulate(t Target, o simulate.Options) (*simulate.Result, error) {
	lists := r.Schedule
	if lists == nil {
		lists = simulate.Whole(r.Final)
	}
	o.Traffic, o.Account = r.traffic, r.Account
	return simulate.Run(lists, t.hardware(), o)
}

// step predicts how long a step takes.
func (s *searcher) step(r *Result) (time.Duration, error) {
	x, err := r.simulate(s.t, simulate.Options{Communicators: s.cfg.Communication.NumCommunicators, Short: true})
	if err != nil {
		return 0, err
	}
	return x.Step, nil
}
