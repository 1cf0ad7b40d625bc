// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/trace"
)

// engineDeviceRows compare two devices of the engine, with half of the cores and of the batch each, with one that has all.
func engineDeviceRows() (rows []Row) {
	for _, x := range []struct {
		name        string
		target      float64
		whole, half problem
	}{{"gpt", 0.95, gpt(256, 8), gpt(256, 4)}, {"resnet", 1, smallResNet(16), smallResNet(8)}} {
		name := "engine/2-devices/" + x.name
		two := func() (side, error) { return x.half.onEngine(2, adam()) }
		rows = append(rows,
			Row{Name: name, Peer: "EPL, 1 device on all cores", Pairs: 15, Warm: 2, Target: x.target,
				Ours: func() (side, error) { return inTurns(two()) }, Theirs: func() (side, error) { return inTurns(x.whole.onEngine(1, adam())) }},
			shareRow(name+"/reduction", two, func(t trace.Times) float64 { return float64(t.Communication) }),
			shareRow(name+"/reduction-exposed", two, func(t trace.Times) float64 { return float64(t.Exposed) }))
	}
	return rows
}

func (p problem) onEngine(devices int, opt optimizer.Interface) (side, error) {
	return p.dealt(opt, epl.WithInner("cpu"), epl.WithLocalDevices(devices))
}

// shareRow reads a share of the step off its timeline.
func shareRow(name string, begin func() (side, error), part func(trace.Times) float64) Row {
	return Row{Name: name, Peer: "time of the step", Pairs: 7, Custom: func(runs int) (Result, error) {
		var shares []float64
		for range runs {
			report, err := reportOf(begin)
			if err != nil {
				return Result{}, err
			}
			shares = append(shares, part(report.Total)/float64(report.Span)/float64(len(report.Devices)))
		}
		r := Result{Ratio: median(shares)}
		r.Low, r.High = bootstrap(shares)
		return r, nil
	}}
}
