// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/easyparallel/epl"
)

// reliabilityRows compare steps that are looked at for silent errors with steps that are not, on two devices of the engine: the ratio is below 1 by what that costs.
func reliabilityRows() (rows []Row) {
	const peer = "EPL without it"
	for _, x := range []struct {
		name string
		p    problem
	}{{"gpt-128", gpt(128, 4)}, {"mlp-25M/64", wideMLP(64)}} {
		on := func(s settings) func() (side, error) {
			return func() (side, error) {
				return inTurns(x.p.dealtBy(s, adam(), epl.WithInner("cpu"), epl.WithLocalDevices(2)))
			}
		}
		for _, s := range []settings{{"reliability.nan": "skip"}, {"reliability.nan": "stop"}, {"reliability.check_every": "1"}} {
			for key, value := range s {
				rows = append(rows, Row{Name: key + "-" + value + "/" + x.name, Peer: peer, Pairs: 15, Warm: 2, Ours: on(s), Theirs: on(nil)})
			}
		}
	}
	small := gpt(64, 4)
	hundred := func(s settings) func() (side, error) {
		return func() (side, error) {
			return inHundreds(small.dealtBy(s, adam(), epl.WithInner("cpu"), epl.WithLocalDevices(2)))
		}
	}
	return append(rows, Row{Name: "reliability.check_every-100/gpt-64", Peer: peer, Pairs: 15, Warm: 1, Ours: hundred(settings{"reliability.check_every": "100"}), Theirs: hundred(nil)})
}

// inHundreds makes a turn of a hundred steps, and counts their mean: what happens in one of them counts, too.
func inHundreds(s side, err error) (side, error) {
	once := s.once
	s.once = func() (total time.Duration, _ error) {
		const steps = 100
		for range steps {
			d, err := once()
			if err != nil {
				return 0, err
			}
			total += d
		}
		return total / steps, nil
	}
	return s, err
}
