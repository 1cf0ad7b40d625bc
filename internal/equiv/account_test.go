// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/schedule"
)

// foretold trains some steps, and compares what devices needed in the last with what the account said. slack is how far they
// may be apart; if they may not be, the most of every use is compared, too.
// The account is that of the first device of each place: fewer, if given, tells which others may need less.
func foretold(t *testing.T, env *epl.Env, trainer *train.Trainer, ds train.Dataset, slack float64, fewer ...func(device int) bool) {
	t.Helper()
	loop := train.NewLoop(trainer)
	loop.OnStep("meter", 0, func(loop *train.Loop, _ []*tensors.Tensor) error {
		if loop.LoopStep == 0 {
			env.Stats()
		}
		return nil
	})
	if _, err := loop.RunSteps(env.Dataset(ds), 2); err != nil {
		t.Fatalf("%+v", err)
	}
	predicted := env.Predicted().Devices
	for d, got := range env.Stats().Devices {
		if got.PeakBytes == 0 {
			continue // it took no part
		}
		if len(fewer) > 0 && fewer[0](d) {
			if got.PeakBytes > predicted[d].PeakBytes {
				t.Errorf("device %d: metered %d bytes, predicted %d at most", d, got.PeakBytes, predicted[d].PeakBytes)
			}
			continue
		}
		if apart(got.PeakBytes, predicted[d].PeakBytes) > slack {
			t.Errorf("device %d: metered %d bytes %v, predicted %d %v", d, got.PeakBytes, got.Peak, predicted[d].PeakBytes, predicted[d].Peak)
		}
		for use, n := range predicted[d].Most {
			if slack == 0 && got.Most[use] != n {
				t.Errorf("device %d: the most of %s was %d bytes, predicted %d", d, use, got.Most[use], n)
			}
		}
	}
}

func apart(a, b int64) float64 { return math.Abs(float64(a)/float64(b) - 1) }

func TestTheAccountForetellsWhatOneDeviceNeeds(t *testing.T) {
	for _, m := range Models() {
		for _, micro := range []int{1, 3} {
			for _, devices := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s/%d/%d", m.Name, micro, devices), func(t *testing.T) {
					t.Parallel()
					env := newCluster(t, devices, micro, nil)
					trainer := train.NewTrainer(env.Backend(), newStore(), m.Build, m.Loss, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
					foretold(t, env, trainer, Dataset{m.Batch}, 0)
				})
			}
		}
	}
}

// The engine for CPUs counts what it allocates itself: an arena, and buffers. Beside what the account knows there are numbers
// of a few bytes, which the runtime gives to segments, and what the program that gave variables their first values needed more
// of the arena.
func TestTheAccountForetellsWhatTheEngineAllocates(t *testing.T) {
	for _, m := range []Model{blocksOfTransformer(2), blocksOfTransformer(4)} {
		for _, micro := range []int{1, 3} {
			for _, params := range []map[string]any{nil, {"gradient_checkpoint.type": "auto"}} {
				t.Run(fmt.Sprint(m.Name, micro, params), func(t *testing.T) {
					env := newCluster(t, 1, micro, params, epl.WithInner("cpu"))
					trainer := train.NewTrainer(env.Backend(), newStore(), m.Build, m.Loss, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
					loop := train.NewLoop(trainer)
					loop.OnStep("meter", 0, func(loop *train.Loop, _ []*tensors.Tensor) error {
						if loop.LoopStep == 0 {
							env.Stats()
						}
						return nil
					})
					if _, err := loop.RunSteps(env.Dataset(Dataset{m.Batch}), 3); err != nil {
						t.Fatalf("%+v", err)
					}
					got, want := env.Stats().Devices[0], env.Predicted().Devices[0]
					engine := want.PeakBytes - want.Peak[schedule.ForCommunication.String()] // without copies on the host
					if d := got.Allocated - engine; d < 0 || d > engine/100 {
						t.Errorf("%d bytes were allocated, predicted %d: %v", got.Allocated, engine, want.Peak)
					}
				})
			}
		}
	}
}

func TestTheAccountForetellsWhatGradientsTravelIn(t *testing.T) {
	m := Models()[0]
	env := newCluster(t, 2, 1, map[string]any{"communication.fp16": true})
	trainer := train.NewTrainer(env.Backend(), newStore(), m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil)
	foretold(t, env, trainer, Dataset{m.Batch}, 0)
}

// When a neighbour takes what was sent to it depends on how fast it is: what travels is small in these models.
func TestTheAccountForetellsWhatStagesNeed(t *testing.T) {
	for _, m := range []Staged{{"bulky", bulky, Models()[0].Loss, Regression(bulkyBatch, narrowWidth)}} {
		for _, p := range fewPlans() {
			t.Run(m.Name+"/"+p.String(), func(t *testing.T) {
				t.Parallel()
				env := p.env(t, nil)
				trainer := train.NewTrainer(env.Backend(), newStore(), m.Build(p.stages), m.Loss, epl.Optimizer(sgd()), nil, nil)
				foretold(t, env, trainer, Dataset{m.Batch}, 0.1)
			})
		}
	}
}

func TestTheAccountForetellsWhatDevicesOfASplitNeed(t *testing.T) {
	for _, m := range PartedModels() {
		p := m.whole(3, 2, 2)
		t.Run(m.Name+"/"+p.String(), func(t *testing.T) {
			t.Parallel()
			env := p.env(t, nil)
			trainer := train.NewTrainer(env.Backend(), newStore(), m.under(p).Build(0), m.Loss, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
			foretold(t, env, trainer, Dataset{m.Batch}, 0, func(device int) bool { return device%3 != 0 })
		})
	}
}

// blocksOfTransformer is deep enough that activations are most of what it needs.
func blocksOfTransformer(layers int) Model {
	return Model{"deep", func(scope *model.Scope, x *Node) *Node {
		return transformer.New(scope).WithVocabSize(32).WithEmbedDim(32).WithNumLayers(layers).WithNumHeads(2).WithHeadDim(16).
			WithMaxPosEmbed(16).WithCausalMask(true).Logits(x, transformer.CallOptions{})
	}, loss.SparseCategoricalCrossEntropyLogits, Tokens(8, 16, 32)}
}

// techniques are the settings that save memory.
var techniques = []map[string]any{
	{},
	{"gradient_checkpoint.type": "auto"},
	{"zero.level": "v0"},
	{"zero.level": "v1"},
	{"zero.level": "v2"},
	{"offload.level": "v0"},
	{"amp.level": "O1", "amp.dtype": "bfloat16"},
	{"optimizer.num_apply_group": 4},
	{"gradient_checkpoint.type": "auto", "zero.level": "v2"},
	{"gradient_checkpoint.type": "auto", "zero.level": "v1", "amp.level": "O1", "amp.dtype": "bfloat16", "optimizer.num_apply_group": 2},
}

func TestTheAccountForetellsWhatEachTechniqueNeeds(t *testing.T) {
	for micro, m := range map[int]Model{1: blocksOfTransformer(3), 2: Models()[0]} {
		for _, settings := range techniques {
			t.Run(fmt.Sprintf("%s/%v", m.Name, settings), func(t *testing.T) {
				t.Parallel()
				env := newCluster(t, 2, micro, settings)
				trainer := train.NewTrainer(env.Backend(), newStore(), m.Build, m.Loss, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
				foretold(t, env, trainer, Dataset{m.Batch}, 0.05)
			})
		}
	}
}

var helps = regexp.MustCompile(`(?m)^\s+((?:[a-z_.]+=\S+ ?)+)\s+[0-9.]+ [KMG]?i?B(  fits)?$`)

// A model that does not fit is refused before its first step, and whatever is said to make it fit does.
func TestAModelThatDoesNotFitTrainsWithWhatIsSaidToHelp(t *testing.T) {
	m := blocksOfTransformer(4)
	adam := func() optimizer.Interface { return epl.Optimizer(optimizer.Adam().Done()) }
	free := newCluster(t, 2, 1, nil)
	want, err := TrainOn(free.Backend(), free.Dataset(Dataset{m.Batch}), m, adam(), 2)
	if err != nil {
		t.Fatal(err)
	}
	limit := free.Predicted().Devices[0].PeakBytes * 8 / 10
	tight := newCluster(t, 2, 1, map[string]any{"cluster.device_memory": limit})
	_, err = TrainOn(tight.Backend(), tight.Dataset(Dataset{m.Batch}), m, adam(), 2)
	mustFail(t, err, "epl: device 0 needs ", "cluster.device_memory", "activations ", "what would help", "smaller micro-batch")
	var fitting []string
	for _, found := range helps.FindAllStringSubmatch(err.Error(), -1) {
		if found[2] != "" {
			fitting = append(fitting, strings.TrimSpace(found[1]))
		}
	}
	if len(fitting) < 2 {
		t.Errorf("only %q are said to be enough: %v", fitting, err)
	}
	for _, settings := range fitting {
		params := map[string]any{"cluster.device_memory": limit}
		for s := range strings.FieldsSeq(settings) {
			key, value, _ := strings.Cut(s, "=")
			params[key] = value
		}
		t.Run(settings, func(t *testing.T) {
			env := newCluster(t, 2, 1, params)
			got, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, adam(), 2)
			if err != nil {
				t.Fatal(err)
			}
			if diff := math.Abs(float64(got.Losses[1] - want.Losses[1])); diff > 0.05 {
				t.Errorf("losses %v, without limit %v", got.Losses, want.Losses)
			}
			for d, x := range env.Stats().Devices {
				if x.PeakBytes > limit {
					t.Errorf("device %d had %d bytes of %d", d, x.PeakBytes, limit)
				}
			}
		})
	}
}
