// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
)

// Version is that of the format of plans. A plan of another one is refused.
const Version = 2

// Plan is all that was decided about a training program: it prints, is compared and is pinned. docs/plans.md describes its JSON.
type Plan struct {
	Version int     `json:"version"`
	EPL     string  `json:"epl"` // the version of EPL that decided
	Program Program `json:"program"`
	Cluster Cluster `json:"cluster"`
	// Engine is what the choices are for, and what came of them.
	Engine Engine `json:"engine"`
	// Settings are the keys of the configuration that decide, with where their values come from.
	Settings []Setting `json:"settings"`
	// Passes are those that run, and the switches of the engine for CPUs, in the words of [passes.Parse].
	Passes string `json:"passes"`

	Replicas     int `json:"replicas"`
	MicroBatches int `json:"micro_batches"` // of a model replica in a step; the most, if they differ
	// Shares are those of each model replica, if they differ; nil: all have as many.
	Shares *Shares `json:"shares,omitempty"`
	// Weights are those of the devices of a TaskGraph, if they differ; nil: all get equal parts.
	Weights *Weights `json:"weights,omitempty"`
	// Cut is how EPL cut the program into stages; nil: the user did, or nobody.
	Cut *Cut `json:"cut,omitempty"`
	// Ways are those that were compared, the chosen one first; nil: the user chose.
	Ways []Way `json:"ways,omitempty"`
	// Changes are what would become of the choice on other clusters; nil: nobody asked.
	Changes []Change `json:"changes,omitempty"`
	// Placement has the ranks of the devices, by TaskGraph and model replica.
	Placement [][][]int `json:"placement"`
	Stages    []Stage   `json:"stages,omitempty"`
	// Choices are what passes apply to single ops and variables.
	Choices passes.Choices `json:"choices"`
	// Links are what was measured of links before the plan was made; nil: nothing was to be.
	Links *cost.Links `json:"links,omitempty"`
	// Fusion is how many buckets of gradients there are by what links take; nil: as many as communication.max_splits says.
	Fusion  *Fusion  `json:"fusion,omitempty"`
	Buckets []Bucket `json:"buckets,omitempty"`
	// Why says of a program without gradients why it runs on several devices; "": it runs as a whole, on one.
	Why string `json:"-"`
	// Dealt says how batches of such a program are dealt to model replicas; "": there is one.
	Dealt string `json:"-"`
	// Notes are what passes have to say about what they did, and why.
	Notes []string `json:"notes,omitempty"`
	Costs Costs    `json:"costs"`
	// Result is the fingerprint of what the plan makes of the program.
	Result string `json:"result"`
	// Others are for other engines, where those need other choices. Only a plan that is written to a file has them.
	Others []Other `json:"other_engines,omitempty"`
}

// Program is what a plan was made for.
type Program struct {
	Name        string     `json:"name"`
	Fingerprint string     `json:"fingerprint"` // see [ir.Program.Fingerprint]
	Ops         int        `json:"ops"`
	Inputs      []string   `json:"inputs"` // shapes
	Variables   []Variable `json:"variables"`
}

// Variable is one of the program.
type Variable struct {
	Name      string `json:"name"` // see [ir.Program.VariableNames]
	Shape     string `json:"shape"`
	Trainable bool   `json:"trainable,omitempty"`
}

// Cluster is what of the cluster decides.
type Cluster struct {
	Workers [][]int `json:"workers"` // the indices of the devices of each
}

// Setting is a key of the configuration.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Why   string `json:"why"` // where the value comes from
}

// Stage is what some devices of a model replica do.
type Stage struct {
	TaskGraphs []string `json:"task_graphs"`
	Strategy   string   `json:"strategy"`
	Places     []int    `json:"places"` // the devices of a model replica, by their index in it
	Ops        int      `json:"ops"`    // of forward and backward, as recorded
	Variables  []string `json:"variables"`
}

// Bucket is a group of values that are merged together over the model replicas.
type Bucket struct {
	How    string `json:"how"`
	Places []int  `json:"places"`
	Values int    `json:"values"`
	Bytes  int64  `json:"bytes"`
	Parts  bool   `json:"parts,omitempty"` // each model replica gets a part
}

// undecided are keys that decide nothing about a program: how it runs, and on what.
var undecided = []string{
	"amp.debug_log", "amp.tf32", "cluster.run_visible_devices", "cluster.device_memory", "cluster.cores_per_device", "cluster.description", "cluster.measure",
	"communication.backend", "communication.timeout", "communication.checksum", "communication.streams",
	"io.slicing", "io.unbalanced_io_slicing", "io.drop_last_files",
}

// newPlan is a plan of which nothing is decided yet but what is given.
func newPlan(p *ir.Program, cfg *config.Config, t Target) *Plan {
	pl := undecidedPlan(cfg, t)
	if p.IsTraining() && !t.trial {
		pl.Program = programOf(p)
	}
	return pl
}

// undecidedPlan is a plan of which the settings are known.
func undecidedPlan(cfg *config.Config, t Target) *Plan {
	pl := &Plan{Version: Version, EPL: version.Version, Cluster: clusterOf(t), Engine: engineOf(t), Passes: t.Passes.String(), Replicas: 1, MicroBatches: 1, Links: t.Measured}
	for _, e := range cfg.Entries() {
		if !slices.Contains(undecided, e.Key) {
			pl.Settings = append(pl.Settings, Setting{e.Key, e.Value, e.Source.String()})
		}
	}
	return pl
}

func programOf(p *ir.Program) Program {
	x := Program{Name: ir.Stable(p.Name), Fingerprint: p.Fingerprint(), Ops: len(p.Main.Ops),
		Inputs: each(p.Inputs, func(v *ir.Value) string { return ir.ShapeText(v.Shape) })}
	for i, name := range p.VariableNames() {
		v := p.Variables[i]
		x.Variables = append(x.Variables, Variable{name, ir.ShapeText(v.Param.Shape), v.Trainable})
	}
	return x
}

func clusterOf(t Target) Cluster {
	return Cluster{Workers: each(t.Cluster.Workers(), func(w cluster.Worker) []int {
		return each(w.Devices, func(d cluster.Device) int { return d.Index })
	})}
}

// settings are those of the plan by key.
func (pl *Plan) settings() map[string]string {
	m := map[string]string{}
	for _, s := range pl.Settings {
		m[s.Key] = s.Value
	}
	return m
}

// Configure is a configuration with the settings of the plan, which win over all others.
func (pl *Plan) Configure(cfg *config.Config) (*config.Config, error) {
	return cfg.Pinned(pl.settings())
}

// Chosen is a configuration with what the plan's program got of auto.auto_parallel.
func (pl *Plan) Chosen(cfg *config.Config) (*config.Config, error) {
	if len(pl.Ways) == 0 {
		return cfg, nil
	}
	return cfg.Choose(pl.Ways[0].Settings)
}

// ranks are the devices of a placement.
func ranks(p *cluster.Placement) [][][]int {
	return each(p.Virtual, func(v cluster.VirtualDevice) [][]int {
		return each(v.Groups, func(g []cluster.Device) []int { return each(g, func(d cluster.Device) int { return d.Rank }) })
	})
}

// placement is that of the plan on a cluster.
func (pl *Plan) placement(c *cluster.Cluster) *cluster.Placement {
	return &cluster.Placement{Replicas: pl.Replicas, Virtual: each(pl.Placement, func(groups [][]int) cluster.VirtualDevice {
		return cluster.VirtualDevice{Groups: each(groups, func(ranks []int) []cluster.Device { return each(ranks, c.Device) })}
	})}
}

// each is what f makes of every element of a list; nil of none.
func each[T, U any](list []T, f func(T) U) (all []U) {
	for _, x := range list {
		all = append(all, f(x))
	}
	return all
}

// assignment says where the devices of a placement are: which of a model replica's devices a TaskGraph uses, and which device of
// the job that is in each model replica.
type assignment struct {
	places [][]int // by TaskGraph
	ranks  [][]int // by model replica and place; the worker of the first device feeds the replica
}

// assignmentOf is that of a placement; empty if there is none.
func assignmentOf(p *cluster.Placement) (s assignment) {
	if p == nil {
		return s
	}
	s = assignment{make([][]int, len(p.Virtual)), make([][]int, p.Replicas)}
	for r := range p.Replicas {
		for i, v := range p.Virtual {
			for _, d := range v.Groups[r] {
				place := slices.Index(s.ranks[r], d.Rank)
				if place < 0 {
					place = len(s.ranks[r])
					s.ranks[r] = append(s.ranks[r], d.Rank)
				}
				if r == 0 {
					s.places[i] = append(s.places[i], place)
				}
			}
		}
	}
	return s
}

// spans tells whether a model replica has devices of several workers.
func (s assignment) spans(c *cluster.Cluster) bool {
	return slices.ContainsFunc(s.ranks, func(ranks []int) bool {
		return slices.ContainsFunc(ranks, func(rank int) bool { return c.Device(rank).Worker != c.Device(ranks[0]).Worker })
	})
}

// near tells whether the devices of each group, of all model replicas, are of one worker.
func (s assignment) near(c *cluster.Cluster, groups [][]int) bool {
	for _, places := range groups {
		for _, ranks := range s.ranks {
			for _, place := range places {
				if c.Device(ranks[place]).Worker != c.Device(s.ranks[0][places[0]]).Worker {
					return false
				}
			}
		}
	}
	return true
}

// checkSlicing refuses io.slicing where files would be dealt to workers that do not feed as many model replicas as their
// share: nobody would read some of them, or some too soon.
func (s assignment) checkSlicing(c *cluster.Cluster) error {
	for w, n := range s.perWorker(c) {
		if has := len(c.Workers()[w].Devices); n*len(s.ranks[0]) != has {
			return errors.Errorf("epl: io.slicing deals files to workers by their devices, but worker %d has %d and feeds %d model replicas of %d devices each: "+
				"set io.slicing to false, so that all workers read all files, or let model replicas fit into workers", w, has, n, len(s.ranks[0]))
		}
	}
	return nil
}

// perWorker is how many model replicas each worker feeds; nil if there is one worker.
func (s assignment) perWorker(c *cluster.Cluster) []int {
	if c.WorkerNum() == 1 {
		return nil
	}
	n := make([]int, c.WorkerNum())
	for _, ranks := range s.ranks {
		n[c.Device(ranks[0]).Worker]++
	}
	return n
}
