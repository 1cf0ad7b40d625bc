// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
)

// maxSplits is the key that says how many buckets there are at most.
const maxSplits = "communication.max_splits"

// Fusion is how many buckets gradients of a dtype are fused into, and why.
type Fusion struct {
	Splits []int  `json:"splits"` // by group of devices of a model replica: a stage; 0: as communication.max_splits says
	Why    string `json:"why"`
}

func (f *Fusion) splits() []int {
	if f == nil {
		return nil
	}
	return f.Splits
}

// fuse decides on fewer buckets than the default allows, where links are known by which fewer take less time. What a user sets is law.
func (pl *Plan) fuse(r *Result, cfg *config.Config, t Target, a assignment) {
	links := cmp.Or(t.Hardware, t.Links)
	if pl.given(maxSplits) || links == nil || len(links.Devices) < t.Cluster.TotalDevices() || pl.Replicas == 1 {
		return
	}
	groups, most := r.Final.Groups(), cfg.Communication.MaxSplits
	f := &Fusion{Splits: make([]int, len(groups))}
	var why []string
	for place, devices := range groups {
		ranks := each(a.ranks, func(replica []int) int { return replica[devices[0]] })
		if !links.Connected(ranks) {
			return
		}
		bytes, latency, rest := reduction(r.Final, place, links, ranks, cfg.Communication.FP16)
		n := splitsFor(latency, rest)
		if bytes == 0 || n >= most {
			continue
		}
		f.Splits[place] = n
		text := fmt.Sprintf("%s instead of %d: to reduce %s takes %s, and each bucket %s more", words.Count(n, "bucket"), most, humanize.Bytes(bytes),
			humanize.Duration(rest), humanize.Duration(latency))
		if len(groups) > 1 {
			text = fmt.Sprintf("stage group %d: %s", place, text)
		}
		why = append(why, text)
	}
	if why != nil {
		f.Why = "gradients are fused by what links take: " + strings.Join(why, "; ")
		pl.Fusion = f
	}
}

// splitsFor is the number of buckets for which the time is least that computation does not hide: each costs a latency, and of what grows with the bytes the last one has its
// share. The sum of n·latency and rest/n is least for the square root of their ratio.
func splitsFor(latency, rest time.Duration) int {
	return max(1, int(math.Round(math.Sqrt(float64(rest)/float64(max(latency, 1))))))
}

// reduction is how long it takes to reduce the gradients of a place over model replicas, as one bucket: for each bucket, and for the bytes.
func reduction(p *ir.Program, place int, links *cost.Cluster, ranks []int, half bool) (bytes int64, latency, rest time.Duration) {
	by := map[cost.Collective]int64{}
	for _, op := range p.Main.Ops {
		if m, ok := op.Attrs.(*ir.Merge); ok && op.Place == place && op.Phase == ir.Backward && m.How.Adds() && !m.Worker {
			kind := cost.AllReduce
			if op.Outputs[0].On(ir.Replicas).Kind == ir.Flat {
				kind = cost.ReduceScatter
			}
			by[kind] += op.Inputs[0].Bytes()
		}
	}
	for kind, n := range by {
		if bytes += n; half {
			n /= 2
		}
		each, all := links.Apart(kind, n, ranks)
		latency, rest = max(latency, each), rest+all
	}
	return bytes, latency, rest
}

// given tells whether somebody chose the value of a key.
func (pl *Plan) given(key string) bool {
	return slices.ContainsFunc(pl.Settings, func(s Setting) bool { return s.Key == key && s.Why != config.Default.String() })
}
