// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/shard"
	"github.com/easyparallel/epl/simulate"
)

// Target is what a plan is made for besides the program.
type Target struct {
	Cluster *cluster.Cluster
	Passes  passes.Set
	// Hardware is what the devices of the cluster can do, by rank, and what connects them; nil: usual ones.
	Hardware *cost.Cluster
	// Links is a cluster of which only counts what connects its devices; nil: as Hardware says.
	Links *cost.Cluster
	// Measured is what of the links of Hardware, or of Links, was measured for this job; nil: nothing was to be.
	Measured *cost.Links
	// AsWritten: the engine rounds where programs say so.
	AsWritten bool
	// Attention tells whether the engine has an attention, and its gradient, as one op; nil: it has none.
	Attention func(*ir.Op) bool
	// Fused tells the same of another fused op; nil: it has all of them.
	Fused func(*ir.Op) bool
	// Slicing: files are dealt to workers, so that each has to feed as many model replicas as are its share.
	Slicing bool
	// Timeline: a timeline is made of the step, which then runs in more segments.
	Timeline bool
	// Planner is a device that can tell what it makes of segments; nil: none can.
	Planner emit.Planner
	// Cut is one that was made before for the same program and number of stages; nil: there is none.
	Cut *Cut
	// Trained are the training programs so far: those without gradients follow them.
	Trained []*Trained
	// Apart: this worker calls a program without gradients alone, so that model replicas of several workers are of no use.
	Apart bool

	// Batches are how many a training step has to take, as in an earlier run, whatever the number of model replicas; 0: as the configuration says.
	Batches int

	// Sensitivity: a plan that EPL chose says what would become of it on other clusters.
	Sensitivity bool
	// Look sees the program on its way.
	Look func(name, why string, p *ir.Program)

	batches int           // of a step; 0: what the configuration says
	trial   bool          // a plan that is compared with others: nobody reads it
	shards  *shard.Chosen // that were chosen before for the same cut; nil: none
	unfused bool          // there are as many buckets as communication.max_splits says
	weights *Weights      // for which devices have room; nil: they go by speed
}

// Note is something that a user should know of a plan: a sentence, or a table. A heading that starts with ">" is of numbers.
type Note struct {
	Line string
	Head []string
	Rows [][]string
}

// Result is what a plan makes of a program. After an error it has what there was before.
type Result struct {
	Recorded  *ir.Program // as recorded, with the stages of the cut
	Final     *ir.Program // as it runs
	Cut       *Cut
	Placement *cluster.Placement
	// Replicas are, for a program without gradients, the model replicas of this worker that could run it: their devices, by place. If
	// workers run it Together, they are all of the job's, and have ranks.
	Replicas [][]int
	Together bool
	Steps    []passes.Step
	Schedule *schedule.Program // how it runs, if not once on one device
	Account  *schedule.Account // what it needs of memory
	Listings []*emit.Listing   // what devices make of it, or of its segments, if they can tell
	Notes    []Note
	Warnings [][2]string // kind and sentence of what users should know without asking
	AMP      []string    // what mixed precision decided about ops

	text          func() string // the fingerprint of Final; nil: nobody has asked for it
	traffic       schedule.Traffic
	communicators int
	simulated     *simulate.Result // if somebody looks at the program on its way, so that it is not simulated again for a page; else nil: it is large
	hardware      *cost.Cluster    // on which it was
}

// Decide decides how a program runs, and does to it what it decided. It is a pure function, also for a cluster that is only
// described. With auto.auto_parallel it chooses the best of many ways to run a training program.
func Decide(p *ir.Program, cfg *config.Config, t Target) (*Plan, *Result, error) {
	if !cfg.Auto.AutoParallel {
		return decide(p, cfg, t)
	}
	if x := Follows(p, t.Trained); x != nil && len(x.Plan.Ways) > 0 {
		return follow(p, cfg, t, x.Plan.Ways[0])
	}
	if p.IsTraining() {
		return search(p, cfg, t)
	}
	return decide(p, cfg, t)
}

// decide decides what the configuration leaves open.
func decide(p *ir.Program, cfg *config.Config, t Target) (*Plan, *Result, error) {
	plan := func(t Target) (*Plan, *Result, error) {
		pl := undecidedPlan(cfg, t)
		pl.Choices.Shards = t.shards
		if p.IsTraining() && !t.trial {
			program := beside(func() Program { return programOf(p) })
			defer func() { pl.Program = program() }()
		}
		r, err := pl.run(p, t, true)
		return pl, r, err
	}
	pl, r, err := plan(t)
	if err == nil && pl.Fusion != nil && r.Fullest(r.Account, func(rank int) int64 { return t.Memory(cfg, rank) }).Over() {
		t.unfused = true // fewer buckets are larger
		pl, r, err = plan(t)
	}
	if err != nil {
		return pl, r, err
	}
	return shift(pl, r, cfg, t, plan)
}

// beside computes something on another core, which result waits for.
func beside[T any](f func() T) (result func() T) {
	result = sync.OnceValue(f)
	go func() {
		defer func() { _ = recover() }() // result panics, too
		result()
	}()
	return result
}

// Apply does to a program what the plan says. It is refused if the plan was made for something else.
func (pl *Plan) Apply(p *ir.Program, t Target) (*Result, error) {
	if err := pl.Fits(t); err != nil {
		return &Result{Recorded: p}, err
	}
	if err := pl.fitsProgram(p); err != nil {
		return &Result{Recorded: p}, err
	}
	pl, err := pl.on(engineOf(t), p)
	if err != nil {
		return &Result{Recorded: p}, err
	}
	r, err := pl.run(p, t, false)
	if err == nil && !t.Timeline && r.fingerprint() != pl.Result {
		err = errors.Errorf("epl: this version of EPL (%s) makes something else of program %q than the one that planned it (%s): make the plan again",
			version.Version, p.Name, pl.EPL)
	}
	return r, err
}

// run does to a program what the plan says, and decides on the way what it does not say yet.
func (pl *Plan) run(p *ir.Program, t Target, decide bool) (*Result, error) {
	r := &Result{Recorded: p}
	cfg, err := config.Of(pl.settings())
	if err != nil {
		return r, errors.WithMessage(err, "epl: settings of the plan")
	}
	if p.IsTraining() {
		err = pl.placeTraining(r, cfg, t, decide)
	} else {
		err = pl.placeForward(r, cfg, t)
	}
	var assigned assignment
	if err == nil {
		assigned = assignmentOf(r.Placement)
		r.Steps, err = pl.pass(r, cfg, t, assigned, decide)
	}
	if err != nil {
		return r, errors.WithMessagef(err, "program %q", p.Name)
	}
	looks := decide && p.IsTraining() && !t.trial
	if looks {
		r.text = beside(r.Final.Fingerprint)
		defer r.text() // nobody reads the program any more
	}
	if decide && p.IsTraining() && !t.unfused {
		pl.fuse(r, cfg, t, assigned)
	}
	if pl.Links != nil && p.IsTraining() {
		r.Notes = append(r.Notes, Note{Line: pl.Links.String()})
	}
	if pl.Fusion != nil {
		r.Notes = append(r.Notes, Note{Line: pl.Fusion.Why})
	}
	if err := r.schedule(cfg, t, assigned, pl.Fusion.splits()); err != nil {
		return r, err
	}
	if looks {
		if err := pl.look(r, t); err != nil {
			return r, err
		}
	}
	return r, nil
}

// placeTraining cuts a training program into stages, if that is left to EPL, and places it.
func (pl *Plan) placeTraining(r *Result, cfg *config.Config, t Target, decide bool) (err error) {
	if decide {
		pl.Cut = t.Cut
	}
	if pl.Cut != nil {
		r.Cut, r.Recorded = pl.Cut, r.Recorded.Clone()
		if err := pl.Cut.Apply(r.Recorded); err != nil {
			return err
		}
		t.look("stages", "EPL cut the program into stages (auto.auto_parallel, pipeline.num_stages)", r.Recorded)
	}
	if decide {
		if err := pl.place(r.Recorded, cfg, t); err != nil {
			return err
		}
		pl.weigh(r, t)
		pl.share(r, t, cmp.Or(t.batches, t.Batches, pl.Replicas*cfg.Pipeline.NumMicroBatch))
		if t.Batches > 0 {
			if err := pl.keep(r, t, cfg.Pipeline.NumMicroBatch); err != nil {
				return err
			}
		}
	}
	if r.Placement = pl.placement(t.Cluster); pl.Shares != nil {
		r.Notes = append(r.Notes, Note{Line: pl.Shares.Why})
	}
	if pl.Weights != nil {
		r.Notes = append(r.Notes, Note{Line: pl.Weights.Why})
	}
	if t.Slicing {
		return assignmentOf(r.Placement).checkSlicing(t.Cluster)
	}
	return nil
}

// pass lets the passes do what the plan says.
func (pl *Plan) pass(r *Result, cfg *config.Config, t Target, assigned assignment, decide bool) ([]passes.Step, error) {
	final := r.Recorded.Clone()
	o := pl.passOptions(cfg, t, assigned)
	switch {
	case r.Recorded.IsTraining():
		o.Local = pl.local()
	case r.Placement != nil:
		o.Local = &ir.Local{Replicas: 1, MicroBatches: 1}
	}
	if decide {
		o.Before = func(pass string, p *ir.Program, o *passes.Options) error {
			if pass == "shard" && o.Choices.Shards != nil {
				return nil // those of a training program, or of the same way before
			}
			err := Choose(pass, p, o)
			pl.Choices = o.Choices
			return err
		}
	}
	o.Note = func(line string) {
		r.Notes = append(r.Notes, Note{Line: line})
		if decide {
			pl.Notes = append(pl.Notes, line)
		}
	}
	o.Table = func(head []string, rows [][]string) { r.Notes = append(r.Notes, Note{Head: head, Rows: rows}) }
	o.Warn = func(kind, line string) { r.Warnings = append(r.Warnings, [2]string{kind, line}) }
	o.AMPLog = func(line string) { r.AMP = append(r.AMP, line) }
	steps, err := passes.Run(final, t.Passes, o, func(pass passes.Pass, p *ir.Program) {
		t.look(pass.Name, pass.Why, p)
		if decide && pass.Name == "taskgraphs" {
			pl.stages(p)
		}
	})
	if err == nil {
		r.Final = final
	}
	return steps, err
}

func (t Target) look(name, why string, p *ir.Program) {
	if t.Look != nil {
		t.Look(name, why, p)
	}
}

// place decides which devices run what.
func (pl *Plan) place(p *ir.Program, cfg *config.Config, t Target) error {
	placed, err := t.place(cfg, each(p.TaskGraphs, func(t *ir.TaskGraph) cluster.TaskGraph { return cluster.TaskGraph{Name: t.Name, Devices: t.Devices} }))
	if err != nil {
		return err
	}
	pl.Replicas, pl.MicroBatches, pl.Placement = placed.Replicas, cfg.Pipeline.NumMicroBatch, ranks(placed)
	return nil
}

// place deals the devices to TaskGraphs.
func (t Target) place(cfg *config.Config, requests []cluster.TaskGraph) (*cluster.Placement, error) {
	o := cluster.Options{
		PreferIntraNode: cfg.Cluster.DevicePlacePreferIntraNode,
		Colocate:        cfg.Cluster.ColocateSplitAndReplicate,
		StagesPerDevice: cfg.Pipeline.StagesPerDevice,
	}
	if t.described() && t.Hardware.Memory() > 0 {
		o.Memory = each(t.Hardware.Devices, func(d cost.Device) int64 { return d.Profile.Memory })
	}
	return cluster.Place(t.Cluster, requests, o)
}

// stages notes what each stage has.
func (pl *Plan) stages(p *ir.Program) {
	if p.Stages == nil {
		return
	}
	index := analysis.Of(p)
	for _, s := range p.Stages {
		pl.Stages = append(pl.Stages, Stage{TaskGraphs: each(s.TaskGraphs, (*ir.TaskGraph).Title), Strategy: s.TaskGraphs[0].Strategy(), Places: s.Places})
	}
	for _, op := range p.Main.Ops {
		if op.TaskGraph != nil && !op.IsLeaf() && op.Phase != ir.Apply {
			pl.Stages[index.Stage(op)].Ops++
		}
	}
	for i, name := range p.VariableNames() {
		if t := p.Variables[i].TaskGraph; t != nil {
			s := &pl.Stages[index.StageOf(t)]
			s.Variables = append(s.Variables, name)
		}
	}
}

var zeroLevels = map[string]passes.Sharing{config.ZeroV0: passes.ShareState, config.ZeroV1: passes.ShareGradients, config.ZeroV2: passes.ShareWeights}

// passOptions are what passes need to know of the plan. cfg has its settings.
func (pl *Plan) passOptions(cfg *config.Config, t Target, s assignment) passes.Options {
	comm, checkpoint, offload := cfg.Communication, cfg.GradientCheckpoint, cfg.Offload.Level != ""
	return passes.Options{
		PerWorker: s.perWorker(t.Cluster), Spanning: s.spans(t.Cluster),
		SumGradients: comm.GradientsReduceMethod == config.ReduceSum, DenseGradients: comm.SparseAsDense,
		Places: s.places, Weights: pl.Weights.of(), Colocate: cfg.Cluster.ColocateSplitAndReplicate, StagesPerDevice: cfg.Pipeline.StagesPerDevice,
		Checkpoint: checkpoint.Type, CheckpointEnd: checkpoint.EndTaskgraph + 1, CheckGradients: checkpoint.CheckGradients,
		Regions: cfg.Zero.Level == config.ZeroV2 || offload,
		Share:   zeroLevels[cfg.Zero.Level], OneBucket: comm.MaxSplits == 1, Offload: offload,
		// What replicas compute in parts, none can compare with the others; and gradients that are to travel as float16 do.
		GatherFactors: comm.GatherFactors && !comm.FP16 && (cfg.Reliability.CheckEvery == 0 || cfg.Zero.Level != ""),
		ApplyGroups:   cfg.Optimizer.NumApplyGroup, Timeline: t.Timeline,
		Trial: t.trial, AMP: HalfType(cfg.AMP), AMPBarriers: !t.AsWritten, Attention: t.Attention, Fused: t.Fused, Choices: pl.Choices,
	}
}

// HalfType is the type that mixed precision computes in; invalid if it is off.
func HalfType(c config.AMP) dtypes.DType {
	switch {
	case c.Level == "":
		return dtypes.InvalidDType
	case c.DType == config.BFloat16:
		return dtypes.BFloat16
	}
	return dtypes.Float16
}

// schedule finds what each device does, and what it needs for that. cfg has the settings of the plan.
func (r *Result) schedule(cfg *config.Config, t Target, s assignment, splits []int) (err error) {
	if r.Final.Local == nil {
		return r.account(t.Planner)
	}
	comm, pipeline := cfg.Communication, cfg.Pipeline
	if !r.Final.IsTraining() {
		s.ranks = r.Replicas[:1]
	}
	o := schedule.Options{MaxSplits: comm.MaxSplits, Splits: splits, Strategy: schedule.Strategy(pipeline.Strategy), Ranks: s.ranks,
		Offload: cfg.Offload.Level != "" && r.Final.IsTraining(), Phases: t.Timeline, InPlace: t.Planner != nil}
	if pipeline.StagesPerDevice > 1 {
		o.Groups = len(r.Final.Stages) / pipeline.StagesPerDevice
	}
	if r.Schedule, err = schedule.Build(r.Final, o); err != nil {
		return err
	}
	r.communicators = comm.NumCommunicators
	r.traffic = schedule.Traffic{Half: comm.FP16, Packed: t.Cluster.WorkerNum() > 1, Shared: t.Planner != nil && s.near(t.Cluster, r.Schedule.Groups)}
	return r.account(t.Planner)
}

// account finds what the program needs of memory, by what devices make of it, or of its segments, if they can tell.
func (r *Result) account(planner emit.Planner) error {
	if planner != nil {
		segments := []*ir.Segment{emit.Whole(r.Final)}
		if r.Schedule != nil {
			segments = each(r.Schedule.Segments, func(s *schedule.Segment) *ir.Segment { return s.First })
		}
		r.Listings = make([]*emit.Listing, len(segments))
		var all errgroup.Group
		all.SetLimit(runtime.GOMAXPROCS(0))
		for i, s := range segments {
			all.Go(func() (err error) {
				r.Listings[i], err = planner.Plan(s)
				return err
			})
		}
		if err := all.Wait(); err != nil {
			return err
		}
	}
	r.Account = r.AccountOf(nil, r.Listings)
	if r.Schedule == nil {
		return nil
	}
	var part func(*ir.Segment) (*emit.Listing, error)
	if planner != nil {
		part = planner.Plan
	}
	return r.Schedule.Divide(r.Account, r.Final, r.traffic, part)
}

// AccountOf is what the program needs of memory if devices run these lists, or those of the plan if they are nil, and make this of it, or of the segments.
func (r *Result) AccountOf(lists *schedule.Program, listings []*emit.Listing) *schedule.Account {
	if lists == nil {
		lists = r.Schedule
	}
	switch {
	case lists != nil:
		return lists.Account(r.Final, r.traffic, listings)
	case len(listings) > 0:
		return schedule.WholeAccount(r.Final, listings[0])
	}
	return schedule.WholeAccount(r.Final, nil)
}

// Whole is what the device makes of a program that runs as a whole; nil if it cannot tell.
func (r *Result) Whole() *emit.Listing {
	if len(r.Listings) == 0 {
		return nil
	}
	return r.Listings[0]
}

// sources match the user's lines in the text of a schedule.
var sources = regexp.MustCompile(` \([^()\n]*:[0-9]+\)`)

// fingerprint is that of what was made: the program as it runs, and the lists of the devices.
func (r *Result) fingerprint() string {
	if r.text == nil {
		r.text = sync.OnceValue(r.Final.Fingerprint)
	}
	text := r.text()
	if r.Schedule != nil {
		_, lists, _ := strings.Cut(r.Schedule.String(), "\n") // the first line has the name
		text += sources.ReplaceAllString(lists, "")
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}

// look notes what came of the plan.
func (pl *Plan) look(r *Result, t Target) error {
	if r.Schedule != nil {
		for _, b := range r.Schedule.Buckets {
			pl.Buckets = append(pl.Buckets, Bucket{b.How.String(), r.Schedule.Groups[b.Place], len(b.Merges), b.Bytes(), b.Parts})
		}
	}
	pl.Costs = r.costs()
	pl.Result = r.fingerprint()
	if !t.Hardware.Known() {
		return nil
	}
	x, _, err := r.Simulate(t.Hardware)
	if err != nil {
		return err
	}
	pl.Costs.StepSeconds, pl.Costs.Busy, pl.Costs.Exposed = x.Step.Seconds(), x.Busy(), x.Exposed()
	if t.Look != nil {
		r.simulated, r.hardware = x, t.Hardware
	}
	return nil
}
