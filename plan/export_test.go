// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
)

// Dealt deals batches by speed.
var Dealt = dealt

// StagesAlike cuts a program into stages on devices that are alike.
func StagesAlike(p *ir.Program, n int, device *cost.Profile, link cost.Link) (*Cut, error) {
	c, err := cluster.New(cluster.Spec{Devices: []int{max(n, 1)}})
	if err != nil {
		return nil, err
	}
	cfg, err := config.New(nil)
	if err != nil {
		return nil, err
	}
	return Stages(p, n, cfg, Target{Cluster: c, Hardware: cost.Uniform(1, max(n, 1), device, link, link)})
}

// Needs are, of the ways that a search looked at, by their names: what they need of memory at least, as was known before, and what they are found to need.
func Needs(p *ir.Program, cfg *config.Config, t Target) (map[string][2]int64, error) {
	s, err := newSearch(p, cfg, t)
	if err != nil {
		return nil, err
	}
	s.run()
	all := map[string][2]int64{}
	for _, w := range s.done {
		if w.Looked {
			all[w.String()] = [2]int64{w.least, w.Peak}
		}
	}
	return all, nil
}
