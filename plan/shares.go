// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// Shares are the micro-batches of model replicas that have different numbers of them.
type Shares struct {
	MicroBatches []int `json:"micro_batches"` // by model replica
	// Speeds are how many micro-batches they compute in the time in which the slowest computes one.
	Speeds []float64 `json:"speeds"`
	Why    string    `json:"why"`
}

// share deals the batches of a step to the model replicas, so that the one that needs longest is done as soon as can be. All get as many if that takes about as
// long.
func (pl *Plan) share(r *Result, t Target, batches int) {
	n := pl.Replicas
	a := assignmentOf(pl.placement(t.Cluster))
	speeds := t.speeds(r.Recorded, a, pl.divisions(a))
	alike := slices.Repeat([]float64{1}, n)
	even := dealt(batches, alike)
	best := dealt(batches, speeds)
	gain := 1 - takes(best, speeds)/takes(even, speeds)
	if gain < enough/100. || t.Slicing {
		best = even
	}
	pl.MicroBatches = slices.Max(best)
	if slices.Min(best) == pl.MicroBatches {
		if gain >= enough/100. {
			const evenly = "devices are unequal, but io.slicing deals files evenly, so that all model replicas take as many micro-batches"
			pl.note(r, evenly)
		}
		return
	}
	pl.Shares = &Shares{MicroBatches: best, Speeds: speeds}
	takes := fmt.Sprintf("model replicas take %s micro-batches of the %s of a step", listOf(best, "%d"), words.Count(batches, "batch"))
	if slices.Equal(best, even) {
		pl.Shares.Why = fmt.Sprintf("%s, which %d model replicas cannot share evenly", takes, n)
		return
	}
	pl.Shares.Why = fmt.Sprintf("%s, because their devices are unequal: they compute %s micro-batches in the same time. Gradients are weighted by micro-batches; with equal shares "+
		"computing would take %.0f %% longer", takes, listOf(speeds, "%.3g"), 100*(1/(1-gain)-1))
}

// Batches are those that a training step takes.
func (pl *Plan) Batches() (n int) {
	if pl.Shares == nil {
		return pl.Replicas * pl.MicroBatches
	}
	for _, share := range pl.Shares.MicroBatches {
		n += share
	}
	return n
}

// keep says what comes of batches that are as many as in an earlier run, where the configuration alone would have other micro-batches, or refuses them.
func (pl *Plan) keep(r *Result, t Target, micro int) error {
	if t.Slicing && pl.Shares != nil {
		return errors.Errorf("epl: a step takes %s, as before the checkpoint, which %s cannot share evenly, as io.slicing needs it; use a number of workers that divides them, "+
			"or let the configuration say how many by Checkpoints(…).BatchFromConfig()", words.Count(t.Batches, "batch"), words.Count(pl.Replicas, "model replica"))
	}
	if pl.MicroBatches == micro && pl.Shares == nil {
		return nil
	}
	line := fmt.Sprintf("a step takes %s, as before the checkpoint, whatever the number of model replicas: each of %d takes ", words.Count(t.Batches, "batch"), pl.Replicas)
	if pl.Shares != nil {
		line += "its share"
		if idle := pl.Replicas - t.Batches; idle > 0 {
			r.Warnings = append(r.Warnings, [2]string{"idle", fmt.Sprintf("a step takes %s, as before the checkpoint, so that %s of %d idle; use fewer devices, smaller batches of the dataset "+
				"from the first run on, or let the configuration say how many batches by Checkpoints(…).BatchFromConfig()", words.Count(t.Batches, "batch"), words.Count(idle, "model replica"), pl.Replicas)})
		}
	} else {
		line += words.Count(pl.MicroBatches, "micro-batch")
	}
	pl.note(r, line)
	return nil
}

// dealt deals batches by speed: each to the model replica that is done with it first. Those of one speed take turns, so that it takes as long as there are batches and
// speeds, however many model replicas there are.
func dealt(batches int, speeds []float64) []int {
	const rounding = 1e-9
	type class struct {
		speed    float64
		replicas []int
		batches  int
	}
	var classes []*class
	for r, speed := range speeds {
		i := slices.IndexFunc(classes, func(c *class) bool { return math.Abs(speed-c.speed) <= rounding*speed })
		if i < 0 {
			i, classes = len(classes), append(classes, &class{speed: speed})
		}
		classes[i].replicas = append(classes[i].replicas, r)
	}
	shares := make([]int, len(speeds))
	for range batches {
		first, next, done := -1, (*class)(nil), 0.
		for _, c := range classes {
			turn, r := float64(1+c.batches/len(c.replicas)), c.replicas[c.batches%len(c.replicas)]
			if end := turn / c.speed; next == nil || end < done*(1-rounding) || end <= done*(1+rounding) && r < first {
				first, next, done = r, c, end
			}
		}
		shares[first]++
		next.batches++
	}
	return shares
}

// takes is how long the model replica computes that needs longest.
func takes(shares []int, speeds []float64) (longest float64) {
	for r, share := range shares {
		longest = max(longest, float64(share)/speeds[r])
	}
	return longest
}

// described tells whether it is known of all devices what they can do.
func (t Target) described() bool {
	return t.Hardware != nil && len(t.Hardware.Devices) >= t.Cluster.TotalDevices()
}

// speeds are those of model replicas, relative to the slowest. One is as fast as the device that needs longest for what it has to do.
func (t Target) speeds(p *ir.Program, a assignment, divisions []ir.Division) []float64 {
	speeds := slices.Repeat([]float64{1}, len(a.ranks))
	if !t.described() || len(a.ranks) == 1 {
		return speeds
	}
	speed, loads := t.deviceSpeeds(p), t.loads(p, a, divisions)
	for r, ranks := range a.ranks {
		speeds[r] = math.Inf(1)
		for place, rank := range ranks {
			speeds[r] = min(speeds[r], speed[rank]/loads[place])
		}
	}
	least := slices.Min(speeds)
	for r := range speeds {
		speeds[r] /= least
	}
	return speeds
}

// loads are what the devices of a model replica have to do, by place, relative to the one that has most: all the same if that is not known.
func (t Target) loads(p *ir.Program, a assignment, divisions []ir.Division) []float64 {
	loads := make([]float64, len(a.ranks[0]))
	live, profile := analysis.Live(p), t.Hardware.Devices[0].Profile
	for _, op := range p.Main.Ops {
		if i := slices.Index(p.TaskGraphs, op.TaskGraph); i >= 0 && len(loads) > 1 && live[op] && op.Phase != ir.Apply {
			for j, place := range a.places[i] {
				loads[place] += profile.Op(op).Seconds() * divisions[i].Part(j)
			}
		}
	}
	most := slices.Max(loads)
	return each(loads, func(x float64) float64 {
		if most == 0 {
			return 1
		}
		return x / most
	})
}

// pace is how fast the devices of so many stages are, each split over so many devices, relative to the first device of the cluster; nil: they are alike. All model
// replicas are cut in the same way. If their devices differ, a stage has the least of the shares that it would have in each of them.
func (t Target) pace(p *ir.Program, stages, split int, cfg *config.Config) pace {
	if stages == 1 || !t.described() {
		return nil
	}
	placed, err := t.place(cfg, slices.Repeat([]cluster.TaskGraph{{Devices: split}}, stages))
	if err != nil {
		return nil // it is said when the way is planned
	}
	speed, shares := t.deviceSpeeds(p), slices.Repeat(pace{math.Inf(1)}, stages)
	whole := 0.0 // the speed of the first model replica
	for r := range placed.Replicas {
		slowest := each(placed.Virtual, func(v cluster.VirtualDevice) float64 {
			return slices.Min(each(v.Groups[r], func(d cluster.Device) float64 { return speed[d.Rank] / speed[0] }))
		})
		sum := 0.0
		for _, x := range slowest {
			sum += x
		}
		if r == 0 {
			whole = sum
		}
		for i, x := range slowest {
			shares[i] = min(shares[i], x/sum)
		}
	}
	if slices.Min(shares) > slices.Max(shares)*(1-1e-9) { // else they differ by rounding
		return nil
	}
	return each(shares, func(x float64) float64 { return x * whole })
}

// deviceSpeeds are how often devices run a program in a second, by rank, each alone and without its optimizer.
func (t Target) deviceSpeeds(p *ir.Program) []float64 {
	type kind struct {
		profile *cost.Profile
		threads int
	}
	live, known := analysis.Live(p), map[kind]time.Duration{}
	return each(t.Hardware.Devices, func(d cost.Device) float64 {
		k := kind{d.Profile, 0}
		profile, speed := d.Profile, 1.0
		if d.Profile.Cores > 0 {
			k.threads = d.Profile.Threads(t.Hardware.OnHost(d.Host))
			profile, speed = d.Profile.On(k.threads)
		}
		if _, ok := known[k]; !ok {
			for _, op := range p.Main.Ops {
				if live[op] && op.Phase != ir.Apply {
					known[k] += profile.Op(op)
				}
			}
			known[k] = max(known[k], 1)
		}
		if d.Speed > 0 {
			speed *= d.Speed
		}
		return speed / known[k].Seconds()
	})
}

// listOf are numbers, those that follow each other and are the same together: "4, 4 and 2", "8 × 4 and 8 × 2".
func listOf[T int | float64](list []T, format string) string {
	var parts []string
	for len(list) > 0 {
		n := slices.IndexFunc(list, func(x T) bool { return x != list[0] })
		if n < 0 {
			n = len(list)
		}
		text := fmt.Sprintf(format, list[0])
		if n > 3 {
			parts = append(parts, fmt.Sprintf("%d × %s", n, text))
		} else {
			parts = append(parts, slices.Repeat([]string{text}, n)...)
		}
		list = list[n:]
	}
	if len(parts) == 1 {
		return parts[0]
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

// String lists the micro-batches of the model replicas.
func (s *Shares) String() string { return listOf(s.MicroBatches, "%d") }

// local is the local view of a training program.
func (pl *Plan) local() *ir.Local {
	l := &ir.Local{Replicas: pl.Replicas, MicroBatches: pl.MicroBatches}
	if pl.Shares != nil {
		l.Shares = pl.Shares.MicroBatches
	}
	return l
}
