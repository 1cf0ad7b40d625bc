// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	"github.com/easyparallel/epl/config"
)

// reorder compares pipelines whose devices, and then whose stages, are in other orders than the usual ones. That comes last: it changes no value, and an order of stages gains less than
// what is divided.
func (s *searcher) reorder(best *candidate) *candidate {
	for _, orders := range []func(*candidate) []order{s.ordersOfDevices, s.ordersOfStages} {
		if best == nil {
			return nil
		}
		for _, base := range s.pipelines(best) {
			for _, o := range orders(base) {
				w := *base
				w.across = base.across || !o.stages
				if !s.mayBe(&w, base, o, best) {
					continue
				}
				w.reorder, w.Why, w.Looked, w.order = slices.Concat(base.reorder, o.settings), "", false, len(s.done)
				if o.perDevice > 0 {
					w.Stages, w.PerDevice = w.Stages*o.perDevice, o.perDevice
				}
				if s.consider(&w, best) {
					best = &w
				}
			}
		}
	}
	return best
}

// mayBe tells whether a way in another order may be the best. An order of stages cannot halve a step; one of devices can gain anything, so that in a program of many ops a guess has to
// do.
func (s *searcher) mayBe(w, base *candidate, o order, best *candidate) bool {
	const times = 2
	if o.stages {
		return s.rate(base) <= times*s.rate(best)
	}
	guessed := *w
	guessed.Step = s.guess(w)
	return s.all <= work || s.promise(&guessed) <= times*s.rate(best)
}

// pipelines are the ways with several stages that fit, the fastest first.
func (s *searcher) pipelines(best *candidate) (all []*candidate) {
	for _, w := range s.done {
		if w.Stages > 1 && w.Looked && !w.Unfit && (w.Why == "" || w == best) {
			all = append(all, w)
		}
	}
	slices.SortStableFunc(all, func(a, b *candidate) int { return cmp.Compare(s.rate(a), s.rate(b)) })
	return all
}

// order is one of stages, or of devices.
type order struct {
	settings  []string
	stages    bool
	perDevice int // how many times as many stages there are, which share devices; 0: as many
}

// ordersOfDevices are those that replicas of a pipeline can have, as far as the user leaves it open: the devices that a stage has in all replicas are on one host, in place of the stages of a
// replica.
func (s *searcher) ordersOfDevices(w *candidate) []order {
	const key = "cluster.device_place_prefer_intra_node"
	if len(s.t.Cluster.Workers()) == 1 || w.Replicas == 1 || w.Split > 1 || given(s.cfg, key) {
		return nil
	}
	return []order{{settings: []string{key + "=false"}}}
}

// ordersOfStages are those in which stages can run forward and backward, as far as the user leaves it open.
func (s *searcher) ordersOfStages(w *candidate) (all []order) {
	if given(s.cfg, "pipeline.strategy") || given(s.cfg, "pipeline.stages_per_device") {
		return nil
	}
	for _, strategy := range []string{config.PreferForward, config.PreferBackwardOptimizer, config.ZeroBubble} {
		all = append(all, order{settings: []string{"pipeline.strategy=" + strategy}, stages: true})
	}
	if s.cfg.Pipeline.NumStages == 0 && 2*w.Stages <= s.chain.costly[len(s.chain.Ops)] {
		all = append(all, order{[]string{"pipeline.strategy=" + config.Interleaved, "pipeline.stages_per_device=2"}, true, 2})
	}
	return all
}
