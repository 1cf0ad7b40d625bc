// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// metered trains some steps, and returns what the devices did in the last.
func (m Parted) metered(t *testing.T, p splitPlan, opt optimizer.Interface) []epl.DeviceStats {
	t.Helper()
	env := p.env(t, nil)
	loop := train.NewLoop(train.NewTrainer(env.Backend(), newStore(), m.under(p).Build(0), m.Loss, epl.Optimizer(opt), nil, nil))
	loop.OnStep("meter", 0, func(loop *train.Loop, _ []*tensors.Tensor) error {
		if loop.LoopStep == 1 {
			env.Stats()
		}
		return nil
	})
	if _, err := loop.RunSteps(env.Dataset(Dataset{m.Batch}), 3); err != nil {
		t.Fatalf("%+v", err)
	}
	return env.Stats().Devices
}

// sent is what one device sent, by all ways together.
func sent(d epl.DeviceStats) (n int64) {
	for _, bytes := range d.Sent {
		n += bytes
	}
	return n
}

// head is nothing but a classifier.
func head(batch, width, classes int) Parted {
	return Parted{Name: "head", Build: func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			for i := range s {
				s.part(x, i, func() {
					if s.last(i) {
						x = layers.Dense(scope.In("head"), x, true, classes)
					} else {
						x = Tanh(layers.Dense(scope.In("trunk"), x, true, width))
					}
				})
			}
			return []*Node{x}
		}
	}, Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: Classes(batch, width, classes)}
}

// What a device has falls with the number of devices: weights, what the optimizer keeps for them, and what is computed from
// them.
func TestTheBytesOnADeviceFallWithTheNumberOfDevicesOfASplit(t *testing.T) {
	optimizers := map[string]func() optimizer.Interface{"sgd": sgd, "adam": func() optimizer.Interface { return optimizer.Adam().Done() }}
	// Few samples: reductions among devices cut the loss into segments, so that some tensors of the size of the logits live where
	// one device has fused them away.
	m := head(2, 64, 20000)
	for name, opt := range optimizers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := m.metered(t, splitPlan{parts: []int{1}, colocate: true, replicas: 1, micro: 1}, opt())[0].PeakBytes
			for _, k := range []int{2, 3, 4, 8} {
				for place, d := range m.metered(t, splitPlan{parts: []int{k}, replicas: 1, micro: 1}, opt()) {
					if share := float64(d.PeakBytes) * float64(k) / float64(all); math.Abs(share-1) > 0.1 {
						t.Errorf("device %d of %d has %d bytes, %.2f times its share of %d", place, k, d.PeakBytes, share, all)
					}
				}
			}
		})
	}
}

// The loss of sharded logits needs a few numbers per sample, and their gradient that of the features; never the logits.
func TestAShardedClassifierSendsBytesForSamplesAndNotForClasses(t *testing.T) {
	const batch, width = 16, 24
	for _, p := range []splitPlan{
		{parts: []int{2}}, {parts: []int{4}}, {parts: []int{8}},
		{parts: []int{-2, 2}, colocate: true}, {parts: []int{-4, 4}, colocate: true},
	} {
		p.replicas, p.micro = 1, 1
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			of := func(batch, classes int) int64 { return sent(head(batch, width, classes).metered(t, p, sgd())[0]) }
			few, many := of(batch, 1000), of(batch, 2000)
			if few != many {
				t.Errorf("a device sends %d bytes for 1000 classes and %d for 2000", few, many)
			}
			weights := int64(0)
			if p.colocate { // gradients of the trunk, which is replicated
				weights = 2 * (width*width + width) * 4
			}
			// Features of the other devices' samples and their gradients, and not many numbers per sample.
			if most := int64(batch * (4*width + 16) * 4); few-weights > most {
				t.Errorf("a device sends %d bytes besides gradients of weights, more than %d", few-weights, most)
			}
		})
	}
}

// blocks are residual blocks of two dense layers.
func blocks(batch, width, hidden, n int) Parted {
	return Parted{Name: "blocks", Build: func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			s.part(x, 0, func() {
				for i := range n {
					h := activation.Gelu(layers.Dense(scope.In("up_%d", i), x, true, hidden))
					x = Add(x, layers.Dense(scope.In("down_%d", i), h, true, width))
				}
				x = ReduceAndKeep(x, ReduceMean, -1)
			})
			return []*Node{x}
		}
	}, Loss: loss.MeanSquaredError, Batch: Regression(batch, width)}
}

// attentions are layers of a transformer without their dense half.
func attentions(batch, length, heads, headDim, n int) Parted {
	const vocabulary = 64
	return Parted{Name: "attentions", Build: func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			s.part(x, 0, func() {
				x = layers.Embedding(scope.In("tokens"), x, dtypes.Float32, vocabulary, heads*headDim, false)
				for i := range n {
					h := norm.LayerNorm(scope.In("norm_%d", i), x, -1).Done()
					x = Add(x, attention.SelfAttention(scope.In("attention_%d", i), h, heads, headDim).WithCausalMask(true).Done())
				}
				x = layers.Dense(scope.In("out"), x, true, vocabulary)
			})
			return []*Node{x}
		}
	}, Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: Tokens(batch, length, vocabulary)}
}

// travels is how many bytes leave a device of k in a ring: what all give goes round once to be scattered or gathered, and twice
// to be reduced for all.
func travels(s epl.DeviceStats, k int64) int64 {
	return (2*s.Sent["all-reduce"]+s.Sent["reduce-scatter"]+s.Sent["all-to-all"])*(k-1)/k + s.Sent["all-gather"]*(k-1)
}

// Columns first and rows then: two dense layers, or attention, need one all-reduce of their output forward, and one of the
// gradient of their input backward; or, in its place, a reduce-scatter and an all-gather.
func TestHalfALayerNeedsOneAllReduceForwardAndOneBackward(t *testing.T) {
	for _, k := range []int{2, 4, 8} {
		for name, c := range map[string]struct {
			all   int64 // bytes of an all-reduce
			layer func(n int) Parted
		}{
			"dense":     {32 * 64 * 4, func(n int) Parted { return blocks(32, 64, 256, n) }},
			"attention": {8 * 16 * 64 * 4, func(n int) Parted { return attentions(8, 16, 8, 8, n) }},
		} {
			t.Run(fmt.Sprintf("%s/%d", name, k), func(t *testing.T) {
				t.Parallel()
				p := splitPlan{parts: []int{k}, replicas: 1, micro: 1}
				two, three := c.layer(2).metered(t, p, sgd())[0], c.layer(3).metered(t, p, sgd())[0]
				if more, all := travels(three, int64(k))-travels(two, int64(k)), 2*c.all*int64(k-1)/int64(k); more > 2*all+all/10 {
					t.Errorf("one more sends %d bytes more, and two all-reduces are %d: %v and %v", more, 2*all, two.Sent, three.Sent)
				}
			})
		}
	}
}

// Rows travel to their experts and back; weights of experts do not.
func TestExpertsGetTheirRowsAndKeepTheirWeights(t *testing.T) {
	for _, calculate := range []bool{true, false} {
		for _, k := range []int{2, 3, 4} {
			t.Run(fmt.Sprintf("%v/%d", calculate, k), func(t *testing.T) {
				t.Parallel()
				of := func(hidden int) epl.DeviceStats {
					m := partedModel("experts")
					m.Build = Experts(calculate, hidden)
					return m.metered(t, m.whole(k, 1, 1), sgd())[0]
				}
				small, large := of(30), of(60)
				if small.Sent["all-to-all"] == 0 || sent(small) != sent(large) {
					t.Errorf("a device sends %v, and %v if experts are twice as large", small.Sent, large.Sent)
				}
			})
		}
	}
}
