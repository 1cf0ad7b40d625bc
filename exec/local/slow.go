// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"
	"sync"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// drag lets a device that is slowed down on purpose take longer for a segment that it began to compute at a time. What else the machine does is part of that, not on top
// of it.
func (d *Runner) drag(device int, s *ir.Segment, start time.Time) {
	if d.Slow != nil {
		time.Sleep(d.Slow(device, s) - time.Since(start))
	}
}

// What is measured of devices: products of square matrices, as many as there is time for in a round. The median of the rounds counts. A round is long enough for a device to have its share
// of a core that others use, or of what the system lets it have.
const (
	measuredRows   = 256
	measuredRounds = 5
	measuredRound  = 100 * time.Millisecond
	measuredAtMost = time.Second // then a device that is very slow begins no other round
)

// Speeds measures how often each device of the job computes a matrix product in a second, by rank, while all of them do. All workers have to ask.
func (d *Runner) Speeds() ([]float64, error) {
	most := len(d.devices)
	if d.Job != nil {
		for _, n := range d.Job.Devices {
			most = max(most, n)
		}
	}
	took := make([]int64, most) // nanoseconds
	errs := make([]error, len(d.devices))
	if d.Job != nil { // they begin at the same time
		if _, err := gather(d.Job.Leaders, measures, 0); err != nil {
			return nil, err
		}
	}
	var wg sync.WaitGroup
	for i, b := range d.devices {
		wg.Go(func() {
			var t time.Duration
			t, errs[i] = d.measure(i, b)
			took[i] = int64(t)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	all, counts := [][]int64{took}, []int{len(d.devices)}
	if d.Job != nil {
		var err error
		if all, err = gather(d.Job.Leaders, measures, took...); err != nil {
			return nil, err
		}
		counts = d.Job.Devices
	}
	var speeds []float64
	for w, n := range counts {
		for _, ns := range all[w][:n] {
			speeds = append(speeds, 1e9/float64(max(ns, 1)))
		}
	}
	return speeds, nil
}

// measure is how long a device takes for a product.
func (d *Runner) measure(device int, b compute.Backend) (time.Duration, error) {
	shape := shapes.Make(dtypes.Float32, measuredRows, measuredRows)
	p := ir.NewProgram(measures)
	x := p.NewOp(&ir.Parameter{Name: "x", Shape: shape}, nil, shape)
	dot := p.NewOp(&ir.DotGeneral{LHSContractingAxes: []int{1}, RHSContractingAxes: []int{0}}, []*ir.Value{x.Outputs[0], x.Outputs[0]}, shape)
	p.Main.Append(x)
	p.Main.Append(dot)
	p.Main.Outputs = dot.Outputs
	e, err := emit.Program(b, p)
	if err != nil {
		return 0, err
	}
	defer e.Finalize()
	flat := make([]float32, shape.Size())
	in, err := b.BufferFromFlatData(0, flat, shape)
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Finalize() }()
	product := func() error {
		start := time.Now()
		outs, err := e.Execute([]compute.Buffer{in}, nil, 0)
		if err != nil {
			return err
		}
		if err := outs[0].ToFlatData(flat); err != nil { // when it is there
			return err
		}
		d.drag(device, emit.Whole(p), start)
		return outs[0].Finalize()
	}
	var took []time.Duration
	for begin := time.Now(); len(took) < measuredRounds && time.Since(begin) < measuredAtMost; {
		start := time.Now()
		n := 0
		for n == 0 || time.Since(start) < measuredRound {
			if err := product(); err != nil {
				return 0, err
			}
			n++
		}
		took = append(took, time.Since(start)/time.Duration(n))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
