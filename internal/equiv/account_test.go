package equiv

import (
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
)

// foretold trains some steps, and compares what devices needed in the last with what the account said. slack is how far they
// may be apart; if they may not be, the most of every use is compared, too.
func foretold(t *testing.T, env *epl.Env, trainer *train.Trainer, ds train.Dataset, slack float64) {
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
		for _, o := range optimizers {
			for _, micro := range []int{1, 3} {
				for _, devices := range []int{1, 2} {
					t.Run(fmt.Sprintf("%s/%s/%d/%d", m.Name, o.name, micro, devices), func(t *testing.T) {
						t.Parallel()
						env := newCluster(t, devices, micro, nil)
						trainer := train.NewTrainer(env.Backend(), newStore(), m.Build, m.Loss, epl.Optimizer(o.make()), nil, nil)
						foretold(t, env, trainer, Dataset{m.Batch}, 0)
					})
				}
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
		for _, o := range optimizers {
			p := m.whole(3, 2, 2)
			t.Run(m.Name+"/"+p.String()+"/"+o.name, func(t *testing.T) {
				t.Parallel()
				env := p.env(t, nil)
				trainer := train.NewTrainer(env.Backend(), newStore(), m.under(p).Build(0), m.Loss, epl.Optimizer(o.make()), nil, nil)
				foretold(t, env, trainer, Dataset{m.Batch}, 0)
			})
		}
	}
}
