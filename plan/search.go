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

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/shard"
)

// Way is a way to run a program that EPL compared with others.
type Way struct {
	Stages int `json:"stages"`
	// Split is over how many devices a stage is split, 1: it is not; Part is what is, "": all of it.
	Split int    `json:"split"`
	Part  string `json:"part,omitempty"`
	// PerDevice is how many stages share devices, if several do.
	PerDevice    int `json:"stages_per_device,omitempty"`
	Replicas     int `json:"replicas"`
	MicroBatches int `json:"micro_batches"`
	Batches      int `json:"batches,omitempty"` // of a step, if model replicas cannot share them evenly
	Samples      int `json:"samples"`           // of a step
	// Settings are what it sets of the configuration, "key=value".
	Settings []string `json:"settings,omitempty"`

	// Looked: its step was simulated; else Step is a guess.
	Looked bool `json:"looked,omitempty"`
	// Step is how long a step takes, as predicted.
	Step time.Duration `json:"step_ns"`
	Peak int64         `json:"peak_bytes,omitempty"` // of memory, on the device that needs most
	// Why says why it was not chosen; "": it was.
	Why string `json:"why,omitempty"`
}

// candidate is a way that may be chosen.
type candidate struct {
	Way
	order int              // simpler ways come before others
	saver int              // of the ladder
	least int64            // bytes that it needs, at least
	uses  []schedule.Bytes // of memory, by place, once it was looked at
}

// ladder are the settings that save memory, in the order of what they cost. A way that needs too much memory is tried with each.
var ladder = [][]string{
	nil,
	{"zero.level=v0"},
	{"zero.level=v1"},
	{"gradient_checkpoint.type=auto"},
	{"zero.level=v1", "gradient_checkpoint.type=auto"},
	{"zero.level=v2"},
	{"zero.level=v2", "gradient_checkpoint.type=auto"},
	{"gradient_checkpoint.type=auto", "offload.level=v0"},
}

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
		const unknown = "what the devices can do is not known: ways are compared on usual ones; epl calibrate measures this machine"
		pl.Notes = append(pl.Notes, unknown)
		r.Notes = append(r.Notes, Note{Line: unknown})
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
	limit            int64 // memory of a device, 0: not limited
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

// Given tells whether the user gave a key a value.
func given(cfg *config.Config, key string) bool {
	e, err := cfg.Entry(key)
	return err == nil && e.Source.Origin != config.Default
}

func newSearch(p *ir.Program, cfg *config.Config, t Target) (*searcher, error) {
	s := &searcher{p: p, cfg: cfg, t: t, limit: cfg.Cluster.DeviceMemory, cuts: map[string]*Cut{}, shards: map[*Cut]*shard.Chosen{}, off: map[kind]float64{}}
	s.t.Look, s.t.trial = nil, true
	if len(p.TaskGraphs) != 1 || !p.TaskGraphs[0].Implicit {
		return nil, errors.Errorf("epl: internal error: program %q has annotations and is searched", p.Name)
	}
	s.chain = t.chain(p)
	if s.limit == 0 && t.Hardware != nil {
		s.limit = t.Hardware.Memory()
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
	s.samples = 1
	if len(p.Inputs) > 0 && p.Inputs[0].Shape.Rank() > 0 {
		s.samples = max(p.Inputs[0].Shape.Dimensions[0], 1)
	}
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
			return errors.Errorf("epl: %s cannot be dealt to stages: %s; use a number that divides them, or leave it unset",
				words.Count(devices, "device"), said(s.cfg, "pipeline.num_stages"))
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

// batches are those of a step.
func (w *Way) batches() int { return cmp.Or(w.Batches, w.Replicas*w.MicroBatches) }

// ifSliced says why shares have to be even.
func ifSliced(slicing bool) string {
	if slicing {
		return " evenly, as io.slicing needs it"
	}
	return ""
}

// guess is about how long a step takes, by rules of thumb: stages are even, split products are reduced after each, and gradients travel while backward computes, in
// part.
func (s *searcher) guess(w *candidate) time.Duration {
	h, k, stages := s.t.hardware(), int64(w.Split), int64(w.Stages)
	total := s.chain.Time[len(s.chain.Ops)]
	start := h.Devices[0].Profile.Launch * time.Duration(s.ops)
	micro := start + max(total-start, 0)/time.Duration(k)
	weights, whole := s.weights, int64(0) // of which devices of a split have a part, and all
	heavy := s.chain.heavy(w.Part)
	if w.Part != "" {
		weights = 0
		for v := range heavy {
			weights += v.Param.Bytes()
		}
		whole = s.weights - weights
	}
	if k > 1 {
		group := spread(int(k), 1)
		for _, d := range s.products {
			switch {
			case w.Part != "" && !heavy[d.of]:
			case d.kind == cost.AllToAll: // each has a part
				micro += h.Collective(d.kind, d.bytes/k, group)
			default:
				micro += h.Collective(d.kind, d.bytes, group)
			}
		}
	}
	stage := micro / time.Duration(stages)
	for _, r := range s.blocks { // a stage has whole blocks
		block := float64(s.chain.Time[r.Start+r.Size]-s.chain.Time[r.Start]) / float64(max(total, 1))
		stage = max(stage, time.Duration(float64(micro)*block)*time.Duration((r.Count+w.Stages-1)/w.Stages))
	}
	step := stage * time.Duration(w.MicroBatches+w.Stages-1)
	groups := w.Stages / max(w.PerDevice, 1)
	reduced := h.Collective(cost.AllReduce, weights/int64(groups)/k, spread(w.Replicas, groups*w.Split)) + h.Collective(cost.AllReduce, whole/int64(groups), spread(w.Replicas*w.Split, groups))
	return step + max(reduced-stage/2, reduced/8)
}

// kind is what ways have in common whose guesses are off by about the same.
type kind struct{ stages, split, part bool }

func (w *candidate) kind() kind { return kind{w.Stages > 1, w.Split > 1, w.Part != ""} }

// promise is the time of a sample, as far as it is known.
func (s *searcher) promise(w *candidate) float64 {
	x, known := s.off[w.kind()]
	if !known || w.saver > 0 {
		x = 1
	}
	return x * s.rate(w)
}

// spread are n ranks, each so far from the one before.
func spread(n, by int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i * by
	}
	return ranks
}

// product is a matrix product or convolution with a variable.
type product struct {
	of *ir.Variable
	// kind of what devices do if it is split: they sum up its result; or, if the variable is a batch of matrices, such as experts, which
	// then are dealt to devices, they exchange what these read, or give.
	kind  cost.Collective
	bytes int64
}

// findProducts finds those of forward, and counts the ops.
func (s *searcher) findProducts() {
	of := map[*ir.Value]*ir.Variable{} // and what is made of it alone, such as a cast
	for _, v := range s.chain.p.Variables {
		of[v.Param] = v
	}
	for _, op := range s.chain.p.Main.Ops {
		if op.IsLeaf() || !s.chain.live[op] {
			continue
		}
		s.ops++
		if op.Phase != ir.Forward {
			continue
		}
		var read *ir.Variable
		alone := true
		op.Uses(func(v *ir.Value) {
			if x := of[v]; x != nil {
				if read == nil || x.Param.Bytes() > read.Param.Bytes() {
					read = x
				}
			} else if _, isConst := v.Op.Attrs.(*ir.Constant); !isConst {
				alone = false
			}
		})
		switch f := cost.Family(op); {
		case read == nil:
		case alone && cost.Light(op):
			for _, v := range op.Outputs {
				of[v] = read
			}
		case f == cost.Dot || f == cost.Conv:
			x := product{read, cost.AllReduce, op.Outputs[0].Bytes()}
			if dot, ok := op.Attrs.(*ir.DotGeneral); ok && len(dot.LHSBatchAxes) > 0 {
				x.kind = cost.AllToAll
				for _, in := range op.Inputs {
					if of[in] == nil {
						x.bytes = min(x.bytes, in.Bytes())
					}
				}
			}
			s.products = append(s.products, x)
		}
	}
}

// least is how many bytes the variables of a way take on a device, and gradients that are added up over micro-batches, at least.
func (s *searcher) least(w *candidate) int64 {
	b := schedule.Bytes{schedule.ForWeights: s.weights, schedule.ForState: s.state}
	if w.MicroBatches > 1 {
		b[schedule.ForGradients] = s.weights
	}
	n, split := saved(b, ladder[w.saver], w.Replicas), 1/float64(w.Split)
	if w.Part != "" {
		var part int64
		for v := range s.chain.heavy(w.Part) {
			part += v.Param.Bytes()
		}
		share := float64(part) / float64(max(s.weights, 1))
		split = share*split + 1 - share
	}
	return int64(float64(n) * split / float64(w.Stages/max(w.PerDevice, 1)))
}

// saved is what is left of memory, at least, by settings that save some.
func saved(b schedule.Bytes, settings []string, replicas int) int64 {
	shared := func(uses ...schedule.Use) {
		for _, u := range uses {
			b[u] /= int64(replicas)
		}
	}
	for _, x := range settings {
		switch x {
		case "zero.level=v0":
			shared(schedule.ForOptimizer, schedule.ForState)
		case "zero.level=v1":
			shared(schedule.ForOptimizer, schedule.ForState, schedule.ForGradients)
		case "zero.level=v2":
			shared(schedule.ForOptimizer, schedule.ForState, schedule.ForGradients, schedule.ForWeights)
			b[schedule.ForTemporaries] = 0 // it runs in more segments
		case "gradient_checkpoint.type=auto":
			b[schedule.ForActivations], b[schedule.ForTemporaries] = 0, 0
		case "offload.level=v0":
			b = schedule.Bytes{}
		}
	}
	return b.Total()
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
	all := slices.Clone(ladder[w.saver])
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

func reason(err error) string { return strings.TrimPrefix(err.Error(), "epl: ") }

// look predicts what a way takes. What the device would make of its segments is not asked: that takes time.
func (s *searcher) look(w *candidate) (*Result, error) {
	t := s.t
	t.Planner = nil
	_, r, err := s.plan(w, t)
	if err != nil {
		return r, err
	}
	w.Peak = r.Account.Peak()
	w.uses = each(r.Account.Places, func(x schedule.PlaceAccount) schedule.Bytes { return x.Peak })
	if w.Step, err = r.short(r.lists(), s.t.hardware()); err != nil {
		return r, err
	}
	w.Looked = true
	if s.limit == 0 || w.Peak <= s.limit {
		s.keep(w, r)
	}
	return r, nil
}

// run looks at ways until the others cannot be better, and returns the best; nil if there is none.
func (s *searcher) run() (best *candidate) {
	better := func(w *candidate) bool {
		a, b := s.rate(w), math.Inf(1)
		if best != nil {
			b = s.rate(best)
		}
		if best != nil && math.Abs(a-b) <= enough*b/100 {
			return s.simpler(w, best)
		}
		return a < b
	}
	for len(s.open) > 0 {
		w := heap.Pop(s).(*candidate)
		s.done = append(s.done, w)
		if Consider != nil && !Consider(s.p, w.Way) {
			w.Why = "left out"
			continue
		}
		if w.Settings, w.Why = s.settings(w); w.Why != "" {
			continue
		}
		if s.spent(best) || s.hopeless(w, best) {
			w.Why = fmt.Sprintf("not looked at: about %s", humanize.Duration(time.Duration(s.promise(w)*float64(w.batches())*float64(time.Second))))
			continue
		}
		if n := w.least; s.limit > 0 && n > s.limit {
			what := " for variables and their gradients alone"
			if w.uses != nil {
				what = ""
			}
			w.Peak, w.Why = n, fmt.Sprintf("needs %s of memory at least,%s and devices have %s", humanize.Bytes(n), what, humanize.Bytes(s.limit))
			if w.saver == 0 {
				s.save(w)
			}
			continue
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
			continue
		}
		if w.saver == 0 {
			s.off[w.kind()] = float64(w.Step) / float64(max(guess, 1))
			heap.Init(s)
		}
		if !better(w) && (s.limit == 0 || w.Peak <= s.limit) {
			continue
		}
		if s.limit > 0 && w.Peak <= s.limit && s.t.Planner != nil { // it is worth to ask what the device would make of it
			if err := r.account(s.t.Planner); err != nil {
				w.Why = reason(err)
				continue
			}
			w.Peak = r.Account.Peak()
		}
		if s.limit > 0 && w.Peak > s.limit {
			w.Why = fmt.Sprintf("needs %s of memory, and devices have %s", humanize.Bytes(w.Peak), humanize.Bytes(s.limit))
			if w.saver == 0 {
				s.save(w)
			}
			continue
		}
		best = w
	}
	return best
}

// spent tells whether the search has done its work.
func (s *searcher) spent(best *candidate) bool {
	limit := work
	if best == nil {
		limit = 2 * work
	}
	return s.planned+len(s.p.Main.Ops) > limit && s.looked >= 3
}

// hopeless tells whether a way is so much slower by its guess that it is not worth to be looked at, in a program of many ops.
func (s *searcher) hopeless(w, best *candidate) bool {
	const times = 8 // guesses are off by less
	return best != nil && s.looked >= 3 && s.all > work && s.promise(w) > times*s.rate(best)
}

// simpler tells whether a way is to be preferred to one that is as fast. Memory that is almost full is not simple.
func (s *searcher) simpler(a, b *candidate) bool {
	full := func(w *candidate) int { return btoi(s.limit > 0 && w.Peak > s.limit-s.limit/10) }
	return cmp.Or(cmp.Compare(full(a), full(b)), cmp.Compare(a.order, b.order), cmp.Compare(a.saver, b.saver)) < 0
}

// save tries a way with what saves memory. That makes no step faster.
func (s *searcher) save(way *candidate) {
	for i := range ladder[1:] {
		w := *way
		w.saver, w.Why, w.Peak, w.Looked = i+1, "", 0, false
		if w.Replicas == 1 && slices.ContainsFunc(ladder[w.saver], func(x string) bool { return strings.HasPrefix(x, "zero.") }) {
			continue
		}
		w.least = s.least(&w)
		for _, b := range way.uses {
			w.least = max(w.least, saved(b, ladder[w.saver], w.Replicas))
		}
		heap.Push(s, &w)
	}
}

// rate is the time of a sample.
func (s *searcher) rate(w *candidate) float64 {
	return w.Step.Seconds() / float64(w.batches())
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

// none says why there is no way, and what a cluster would need.
func (s *searcher) none() error {
	least := slices.MinFunc(s.done, func(a, b *candidate) int {
		if (a.Peak == 0) != (b.Peak == 0) {
			return cmp.Compare(btoi(a.Peak == 0), btoi(b.Peak == 0))
		}
		return cmp.Compare(a.Peak, b.Peak)
	})
	text := fmt.Sprintf("epl: auto.auto_parallel found no way to run program %q on %s; what comes closest is %s: %s",
		s.p.Name, clusterOf(s.t), &least.Way, least.Why)
	if s.limit > 0 && least.Peak > s.limit {
		if t, w := s.smallest(); w != nil {
			return errors.Errorf("%s. It would run on %s: %s, %s", text, clusterOf(t), &w.Way, humanize.Bytes(w.Peak))
		}
		text += fmt.Sprintf("; nor would it run on a cluster that is %d times as large", largest)
	}
	return errors.New(text)
}

// largest is how many times as large as the user's a cluster is at most that is looked at for a program that does not fit.
const largest = 16

// smallest is the smallest cluster of such workers that a program fits on, and how; nil: there is none.
func (s *searcher) smallest() (Target, *candidate) {
	for times := 2; times <= largest; times *= 2 {
		t, err := s.t.times(times)
		if err != nil {
			break
		}
		q, err := newSearch(s.p, s.cfg, t)
		if err != nil {
			break
		}
		if best := q.run(); best != nil {
			return t, best
		}
	}
	return s.t, nil
}

// times is the target with so many times as many workers.
func (t Target) times(n int) (Target, error) {
	var devices []int
	for range n {
		devices = append(devices, each(t.Cluster.Workers(), func(w cluster.Worker) int { return len(w.Devices) })...)
	}
	c, err := cluster.New(cluster.Spec{Devices: devices})
	if err != nil {
		return t, err
	}
	h := *t.hardware()
	hosts := 0
	for _, d := range h.Devices {
		hosts = max(hosts, d.Host+1)
	}
	var all []cost.Device
	for i := range n {
		for _, d := range h.Devices {
			d.Host += i * hosts
			all = append(all, d)
		}
	}
	h.Devices = all
	t.Cluster, t.Hardware = c, &h
	return t, nil
}

// String names a way: "2 stages × 4 replicas, split over 2, gradient_checkpoint.type=auto".
func (w *Way) String() string {
	var parts []string
	if w.Stages > 1 {
		parts = append(parts, words.Count(w.Stages, "stage"))
	}
	if w.Split > 1 {
		what := "split"
		if w.Part != "" {
			what += " of " + w.Part
		}
		parts = append(parts, fmt.Sprintf("%s over %d", what, w.Split))
	}
	if w.Replicas > 1 || len(parts) == 0 {
		parts = append(parts, words.Count(w.Replicas, "replica"))
	}
	text := strings.Join(parts, " × ")
	for _, x := range w.Settings {
		if !strings.HasPrefix(x, "pipeline.num_") && !strings.HasPrefix(x, "cluster.colocate") {
			text += ", " + x
		}
	}
	return text
}

// DeviceHours is for how long devices are needed for a million samples, all of them together.
func (w *Way) DeviceHours() float64 {
	return w.Step.Hours() * float64(w.Stages/max(w.PerDevice, 1)*w.Split*w.Replicas) / float64(max(w.Samples, 1)) * 1e6
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
func (s *searcher) Push(x any)    { s.open = append(s.open, x.(*candidate)) }
func (s *searcher) Pop() any {
	last := len(s.open) - 1
	w := s.open[last]
	s.open = s.open[:last]
	return w
}
