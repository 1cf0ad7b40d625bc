// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/schedule"
)

// candidate is a way that may be chosen.
type candidate struct {
	Way
	order int // simpler ways come before others
	saver int // of the ladder
	// reorder are settings of the order in which stages run, or of that of devices; nil: those that are usual.
	reorder []string
	across  bool             // devices are dealt to replicas one of each worker in turn
	least   int64            // bytes that it needs, at least
	uses    []schedule.Bytes // of memory, by place, once it was looked at
	fullest Fullest          // then, too
}

// given tells whether the user gave a key a value.
func given(cfg *config.Config, key string) bool {
	e, err := cfg.Entry(key)
	return err == nil && e.Source.Origin != config.Default
}

// said is what a key is, and where that was given: "auto.global_batch is 7 (from code)".
func said(cfg *config.Config, key string) string {
	e, err := cfg.Entry(key)
	if err != nil {
		return key
	}
	return fmt.Sprintf("%s is %s (from %s)", key, e.Value, e.Source)
}

// contradiction refuses what is given if no way can have all of it.
func (s *searcher) contradiction(devices int) error {
	p := s.cfg.Pipeline
	if n, v := p.NumStages, p.StagesPerDevice; n > 0 {
		switch {
		case n%v != 0:
			return errors.Errorf("epl: %s, and %s: use a number of stages that it divides, or leave one of them unset",
				said(s.cfg, "pipeline.num_stages"), said(s.cfg, "pipeline.stages_per_device"))
		case devices%(n/v) != 0:
			what := said(s.cfg, "pipeline.num_stages")
			if v > 1 {
				what += fmt.Sprintf(", and %s, so that %s of devices have them", said(s.cfg, "pipeline.stages_per_device"), words.Count(n/v, "group"))
			}
			return errors.Errorf("epl: %s cannot be dealt to stages: %s; use a number that divides them, or leave it unset", words.Count(devices, "device"), what)
		}
		devices /= n / v
	}
	if m := p.NumMicroBatch; s.batches > 0 && given(s.cfg, "pipeline.num_micro_batch") && (s.batches%m != 0 || devices%(s.batches/m) != 0) {
		stages := ""
		if p.NumStages > 0 {
			stages = ", and " + said(s.cfg, "pipeline.num_stages")
		}
		what := "a step took " + words.Count(s.batches, "batch") + " before the checkpoint"
		if s.cfg.Auto.GlobalBatch > 0 {
			what = fmt.Sprintf("%s, which are %s of the dataset", said(s.cfg, "auto.global_batch"), words.Count(s.batches, "batch"))
		}
		return errors.Errorf("epl: %s, and %s%s: no number of model replicas, of at most %d, makes that many of them; leave one of these keys unset",
			what, said(s.cfg, "pipeline.num_micro_batch"), stages, devices)
	}
	return nil
}

// enumerate lists the ways, without what saves memory.
func (s *searcher) enumerate(devices int) {
	v := s.cfg.Pipeline.StagesPerDevice
	for _, groups := range divisors(devices) {
		stages := groups * v
		if n := s.cfg.Pipeline.NumStages; n > 0 && n != stages || stages > s.chain.costly[len(s.chain.Ops)] {
			continue
		}
		for _, k := range divisors(devices / groups) {
			w := &candidate{Way: Way{Stages: stages, Split: k, Replicas: devices / groups / k}}
			if v > 1 {
				w.PerDevice = v
			}
			if k == 1 {
				s.add(w, "")
				continue
			}
			if s.oneHost(k) {
				s.add(w, "")
			}
			if stages == 1 {
				for _, part := range s.parts() {
					s.add(w, part)
				}
			}
		}
	}
}

// oneHost tells whether devices that are split together are of one worker, in every model replica.
func (s *searcher) oneHost(devices int) bool {
	return !slices.ContainsFunc(s.t.Cluster.Workers(), func(w cluster.Worker) bool { return len(w.Devices)%devices != 0 })
}

// add notes a way of which part is split.
func (s *searcher) add(way *candidate, part string) {
	w := *way
	w.Part, w.order = part, len(s.open)+len(s.done)
	w.MicroBatches = s.cfg.Pipeline.NumMicroBatch
	if s.batches > 0 {
		w.MicroBatches = (s.batches + w.Replicas - 1) / w.Replicas
		if w.MicroBatches*w.Replicas != s.batches {
			w.Batches = s.batches
		}
		if w.Batches > 0 && (s.batches < w.Replicas || s.t.Slicing) {
			w.Why = fmt.Sprintf("%s of a step cannot be dealt to %s%s", words.Count(s.batches, "batch"), words.Count(w.Replicas, "model replica"), ifSliced(s.t.Slicing))
			s.done = append(s.done, &w)
			return
		}
	}
	w.Samples = w.batches() * s.samples
	w.Step, w.least = s.guess(&w), s.least(&w)
	heap.Push(s, &w)
}

// ifSliced says why shares have to be even.
func ifSliced(slicing bool) string {
	if slicing {
		return " evenly, as io.slicing needs it"
	}
	return ""
}

// cutOf is the cut of a way; nil: there is none.
func (s *searcher) cutOf(w *candidate) (*Cut, error) {
	if w.Stages == 1 && w.Split == 1 {
		return nil, nil
	}
	key := fmt.Sprint(w.Stages, w.Split, w.Part)
	if cut := s.cuts[key]; cut != nil {
		return cut, nil
	}
	cut, err := s.chain.cut(w.Stages, s.t.pace(s.p, w.Stages, w.Split, s.cfg))
	if err != nil {
		return nil, err
	}
	switch {
	case w.Part != "":
		s.chain.splitPart(cut, w.Part, w.Split)
	case w.Split > 1:
		cut.Parts = cut.parts()
		for i := range cut.Parts {
			cut.Parts[i].Split, cut.Parts[i].Devices = true, w.Split
		}
	}
	s.cuts[key] = cut
	return cut, nil
}

// settings are what a way sets, beside what the user gave, or what of that they contradict.
func (s *searcher) settings(w *candidate) (list []string, contradicts string) {
	all := slices.Concat(ladder[w.saver], w.reorder)
	if s.cfg.Pipeline.NumMicroBatch != w.MicroBatches {
		all = append(all, fmt.Sprintf("pipeline.num_micro_batch=%d", w.MicroBatches))
	}
	if w.Stages > 1 && s.cfg.Pipeline.NumStages == 0 {
		all = append(all, fmt.Sprintf("pipeline.num_stages=%d", w.Stages))
	}
	if w.Part != "" {
		all = append(all, "cluster.colocate_split_and_replicate=true")
	}
	for _, setting := range all {
		key, value, _ := strings.Cut(setting, "=")
		if e, err := s.cfg.Entry(key); err != nil || e.Source.Origin != config.Default && e.Value != value {
			return nil, fmt.Sprintf("%s, and it would have to be %s", said(s.cfg, key), value)
		} else if e.Value != value {
			list = append(list, setting)
		}
	}
	return list, ""
}

// rate is the time of a sample.
func (s *searcher) rate(w *candidate) float64 {
	return w.Step.Seconds() / float64(w.batches())
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// divisors are those of n, the least first.
func divisors(n int) (all []int) {
	for i := 1; i <= n; i++ {
		if n%i == 0 {
			all = append(all, i)
		}
	}
	return all
}

// Len, Less, Swap, Push and Pop make a heap of the ways that were not looked at: the one with the best guess is first, simpler ones before others.
func (s *searcher) Len() int { return len(s.open) }

func (s *searcher) Less(i, j int) bool {
	a, b := s.open[i], s.open[j]
	if s.tight && a.least != b.least {
		return a.least < b.least
	}
	if x, y := s.promise(a), s.promise(b); x != y {
		return x < y
	}
	return a.order < b.order || a.order == b.order && a.saver < b.saver
}

func (s *searcher) Swap(i, j int) { s.open[i], s.open[j] = s.open[j], s.open[i] }

func (s *searcher) Push(x any) { s.open = append(s.open, x.(*candidate)) }

func (s *searcher) Pop() any {
	last := len(s.open) - 1
	w := s.open[last]
	s.open = s.open[:last]
	return w
}
