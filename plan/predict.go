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
	lists := r.Schedule
	if lists == nil {
		lists = simulate.Whole(r.Final)
	}
	return simulate.Run(lists, t.hardware(), simulate.Options{Communicators: communicators, Traffic: r.traffic, Account: r.Account})
}

// step predicts how long a step takes.
func (s *searcher) step(r *Result) (time.Duration, error) {
	x, err := r.Simulate(s.t, s.cfg.Communication.NumCommunicators)
	if err != nil {
		return 0, err
	}
	return x.Step, nil
}
