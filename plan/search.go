// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/compute/support/humanize"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/shard"
)

// enough is how much better a way has to be, in percent, than a simpler one.
const enough = 2

// work bounds a search: if there are more ops in all ways together, only the most promising ways are looked at, so many ops of them, but three ways at
// least, and none whose guess is many times what the best one takes. If half of it is spent and nothing fits into memory, those come first that need least of it; they have as much work again.
const work = 90_000

// search finds the best way to run a training program without annotations, and plans it.
//
// A way is compared by what is predicted of it: its plan is decided, and its schedule simulated. For small programs all ways are. That takes time, so for large ones
// ways are looked at in the order of a guess, which is corrected by what was predicted of ways of the same kind. The search counts ops that were planned, not seconds,
// and so finds the same everywhere.
func search(p *ir.Program, cfg *config.Config, t Target) (*Plan, *Result, error) {
	s, err := newSearch(p, cfg, t)
	if err != nil {
		return newPlan(p, cfg, t), &Result{Recorded: p}, err
	}
	best := s.run()
	if best == nil {
		return newPlan(p, cfg, t), &Result{Recorded: p}, s.none()
	}
	var changes []Change
	if t.Sensitivity {
		if changes, err = s.sensitivity(best); err != nil {
			return newPlan(p, cfg, t), &Result{Recorded: p}, err
		}
		s.kept = nil // it is large
	}
	pl, r, err := s.plan(best, t)
	if err != nil {
		return pl, r, err
	}
	pl.Ways, pl.Changes = s.ways(best), changes
	if !t.Hardware.Known() {
		links := ""
		if t.Measured.Any() {
			links = ", with the links that were measured"
		}
		pl.note(r, "what the devices can do is not known: ways are compared on usual ones"+links+"; epl calibrate measures this machine")
	}
	if line := s.pattern(best, pl.Choices.Shards); line != "" {
		pl.note(r, line)
	}
	return pl, r, nil
}

// Consider, if not nil, tells which ways are compared. It is for tests.
var Consider func(p *ir.Program, w Way) bool

// follow plans a program as the training program that has its variables: they stay where they are.
func follow(p *ir.Program, cfg *config.Config, t Target, w Way) (*Plan, *Result, error) {
	chosen, err := cfg.Choose(w.Settings)
	if err != nil {
		return newPlan(p, cfg, t), &Result{Recorded: p}, err
	}
	if !p.IsTraining() {
		return decide(p, chosen, t)
	}
	s := &searcher{p: p, cfg: chosen, t: t, chain: t.chain(p), cuts: map[string]*Cut{}}
	pl, r, err := s.plan(&candidate{Way: w}, t)
	if err == nil {
		pl.Ways = []Way{w}
	}
	return pl, r, err
}

type searcher struct {
	p     *ir.Program
	cfg   *config.Config
	t     Target
	chain *chain
	// batches are how many batches of the dataset all devices take in a step, 0: it depends on the way; samples are those of a batch.
	batches, samples int
	limit            int64 // memory of the device that has most, 0: not limited
	weights, state   int64 // bytes of trained variables, and of the others
	products         []product
	blocks           []analysis.Run
	// off is by what factor guesses are off, by kind of way, as far as such ways were looked at.
	off     map[kind]float64
	ops     int // that run
	cuts    map[string]*Cut
	shards  map[*Cut]*shard.Chosen // how variables are sharded by a cut, whatever saves memory
	open    []*candidate           // a heap
	done    []*candidate
	kept    []kept // what was made of the best ways
	planned int    // ops
	all     int    // ops of all ways together, without what saves memory
	looked  int    // ways
	tight   bool   // nothing fits into memory so far
}

func newSearch(p *ir.Program, cfg *config.Config, t Target) (*searcher, error) {
	s := &searcher{p: p, cfg: cfg, t: t, cuts: map[string]*Cut{}, shards: map[*Cut]*shard.Chosen{}, off: map[kind]float64{}}
	s.t.Look, s.t.trial, s.t.unfused = nil, true, true
	if len(p.TaskGraphs) != 1 || !p.TaskGraphs[0].Implicit {
		return nil, errors.Errorf("epl: internal error: program %q has annotations and is searched", p.Name)
	}
	s.chain = t.chain(p)
	for rank := range t.Cluster.TotalDevices() {
		s.limit = max(s.limit, s.memory(rank))
	}
	s.findProducts()
	s.blocks = s.chain.Blocks()
	for _, v := range p.Variables {
		if v.Trainable {
			s.weights += v.Param.Bytes()
		} else {
			s.state += v.Param.Bytes()
		}
	}
	devices := t.Cluster.TotalDevices()
	s.samples = max(p.Samples(), 1)
	switch g := cfg.Auto.GlobalBatch; {
	case g > 0 && g%s.samples != 0:
		return nil, errors.Errorf("epl: %s, which is no multiple of the dataset's batch, %d", said(cfg, "auto.global_batch"), s.samples)
	case g > 0:
		s.batches = g / s.samples
	case t.Batches > 0:
		s.batches = t.Batches
	case !given(cfg, "pipeline.num_micro_batch"):
		s.batches = devices
	}
	if n := cfg.Pipeline.NumStages; n > 0 {
		if _, err := s.chain.cut(n, nil); err != nil {
			return nil, err
		}
	}
	if err := s.contradiction(devices); err != nil {
		return nil, err
	}
	s.enumerate(devices)
	s.all = len(s.open) * len(p.Main.Ops)
	return s, nil
}

// memory is what a device may have.
func (s *searcher) memory(rank int) int64 { return s.t.Memory(s.cfg, rank) }

// plan plans a way.
func (s *searcher) plan(w *candidate, t Target) (*Plan, *Result, error) {
	nothing := &Result{Recorded: s.p}
	cut, err := s.cutOf(w)
	if err != nil {
		return newPlan(s.p, s.cfg, t), nothing, err
	}
	cfg, err := s.cfg.Choose(w.Settings)
	if err != nil {
		return newPlan(s.p, s.cfg, t), nothing, err
	}
	t.Cut, t.shards, t.batches = cut, s.shards[cut], w.Batches
	pl, r, err := decide(s.p, cfg, t)
	if cut != nil && err == nil && s.shards != nil {
		s.shards[cut] = pl.Choices.Shards
	}
	return pl, r, err
}

func reason(err error) string { return strings.ReplaceAll(err.Error(), "epl: ", "") }

// look predicts what a way takes. What the device would make of its segments is not asked: that takes time.
func (s *searcher) look(w *candidate) (*Result, error) {
	t := s.t
	t.Planner = nil
	_, r, err := s.plan(w, t)
	if err != nil {
		return r, err
	}
	s.count(w, r)
	w.uses = each(r.Account.Places, func(x schedule.PlaceAccount) schedule.Bytes { return x.Peak })
	if w.Step, err = r.short(r.lists(), s.t.hardware()); err != nil {
		return r, err
	}
	w.Looked = true
	if !w.fullest.Over() {
		s.keep(w, r)
	}
	return r, nil
}

// count notes what a way needs of memory.
func (s *searcher) count(w *candidate, r *Result) {
	w.Peak, w.fullest = r.Account.Peak(), r.Fullest(r.Account, s.memory)
}

// run looks at ways until the others cannot be better, and returns the best; nil if there is none.
func (s *searcher) run() *candidate {
	var best *candidate
	for len(s.open) > 0 {
		if w := heap.Pop(s).(*candidate); s.consider(w, best) {
			best = w
		}
	}
	return s.reorder(best)
}

// consider tells whether a way is better than the best so far; nil: there is none. If not, the way may know why.
func (s *searcher) consider(w, best *candidate) bool {
	s.done = append(s.done, w)
	if w.Settings, w.Why = s.settings(w); w.Why != "" {
		return false
	}
	if Consider != nil && !Consider(s.p, w.Way) {
		w.Why = "left out"
		return false
	}
	if s.spent(w, best) || s.hopeless(w, best) {
		w.Why = fmt.Sprintf("not looked at: about %s", humanize.Duration(time.Duration(s.promise(w)*float64(w.batches())*float64(time.Second))))
		return false
	}
	if n := w.least; s.limit > 0 && n > s.limit {
		what := " for variables and their gradients alone"
		if w.uses != nil {
			what = ""
		}
		w.Peak, w.Unfit, w.Why = n, true, fmt.Sprintf("needs %s of memory at least,%s and devices have %s", humanize.Bytes(n), what, humanize.Bytes(s.limit))
		s.save(w)
		return false
	}
	if s.planned += len(s.p.Main.Ops); best == nil && s.planned > work/2 && !s.tight {
		s.tight = true
		heap.Init(s)
	}
	s.looked++
	guess := w.Step
	r, err := s.look(w)
	if err != nil {
		w.Why = reason(err)
		return false
	}
	if w.saver == 0 && w.reorder == nil {
		s.off[w.kind()] = float64(w.Step) / float64(max(guess, 1))
		heap.Init(s)
	}
	if !s.better(w, best) && !w.fullest.Over() {
		return false
	}
	if s.limit > 0 && !w.fullest.Over() && s.t.Planner != nil { // it is worth to ask what the device would make of it
		if err := r.account(s.t.Planner); err != nil {
			w.Why = reason(err)
			return false
		}
		s.count(w, r)
	}
	if w.fullest.Over() {
		w.Unfit, w.Why = true, fmt.Sprintf("needs %s of memory, and devices have %s", humanize.Bytes(w.Peak), humanize.Bytes(s.limit))
		if w.fullest.Has < s.limit {
			w.Why = w.fullest.String()
		}
		s.save(w)
		return false
	}
	return true
}

// better tells whether a way is faster than another, or as fast and simpler. Nothing is no way.
func (s *searcher) better(w, than *candidate) bool {
	if than == nil {
		return true
	}
	a, b := s.rate(w), s.rate(than)
	if math.Abs(a-b) <= enough*b/100 {
		return s.simpler(w, than)
	}
	return a < b
}

// spent tells whether the search has done its work.
func (s *searcher) spent(w, best *candidate) bool {
	limit := work * 4 / 5 // the rest is for orders
	switch {
	case best == nil:
		limit = 2 * work
	case w.reorder != nil:
		limit = work
	}
	return s.planned+len(s.p.Main.Ops) > limit && s.looked >= 3
}

// hopeless tells whether a way is so much slower by its guess that it is not worth to be looked at, in a program of many ops.
func (s *searcher) hopeless(w, best *candidate) bool {
	const times = 8 // guesses are off by less
	return best != nil && s.looked >= 3 && s.all > work && s.promise(w) > times*s.rate(best)
}

// simpler tells whether a way is to be preferred to one that is as fast. Memory that is almost full is not simple, nor are weights that travel in
// every step: what hides that is less certain than what stays where it is.
func (s *searcher) simpler(a, b *candidate) bool {
	full := func(w *candidate) int { return btoi(w.fullest.full() > 0.9) }
	travel := func(w *candidate) int {
		return btoi(slices.ContainsFunc(ladder[w.saver], func(x string) bool { return x == offload || x == wholeShards }))
	}
	return cmp.Or(cmp.Compare(full(a), full(b)), cmp.Compare(travel(a), travel(b)), cmp.Compare(a.order, b.order), cmp.Compare(a.saver, b.saver)) < 0
}

// ways are all that were compared, the best first.
func (s *searcher) ways(best *candidate) (all []Way) {
	slices.SortStableFunc(s.done, func(a, b *candidate) int {
		if a == best || b == best {
			return cmp.Compare(btoi(b == best), btoi(a == best))
		}
		return cmp.Compare(s.rate(a), s.rate(b))
	})
	for _, w := range s.done {
		if w.Why == "" && w != best {
			w.Why = fmt.Sprintf("%.0f %% slower", 100*(s.rate(w)/s.rate(best)-1))
			if s.rate(w) <= s.rate(best)*(1+enough/100.) {
				w.Why = "no faster, and less simple"
			}
		}
		all = append(all, w.Way)
	}
	return all
}
