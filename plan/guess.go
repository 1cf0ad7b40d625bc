// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

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
	replicas := spread(w.Replicas, groups*w.Split)
	if w.across {
		replicas = s.dealtAcross(replicas)
	}
	reduced := h.Collective(cost.AllReduce, weights/int64(groups)/k, replicas) + h.Collective(cost.AllReduce, whole/int64(groups), spread(w.Replicas*w.Split, groups))
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

// dealtAcross are the ranks that places have if devices are dealt to them one of each worker in turn.
func (s *searcher) dealtAcross(places []int) []int {
	workers := len(s.t.Cluster.Workers())
	each := max(s.t.Cluster.TotalDevices()/workers, 1)
	ranks := make([]int, len(places))
	for i, place := range places {
		ranks[i] = place%workers*each + place/workers
	}
	return ranks
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
