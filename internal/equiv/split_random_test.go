package equiv

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/easyparallel/epl"
)

// randomSplit draws TaskGraphs, instances and a schedule for a model.
func randomSplit(r *rand.Rand, m Parted) splitPlan {
	p := splitPlan{replicas: 1 + r.Intn(2), micro: 1 + r.Intn(4), colocate: m.Colocated || r.Intn(3) == 0}
	n := m.Least + r.Intn(m.Most-m.Least+1)
	k := 2 + r.Intn(4)
	for len(p.parts) < n {
		if !p.colocate {
			k = 1 + r.Intn(4)
		}
		p.parts = append(p.parts, []int{k, k, -k}[r.Intn(3)])
	}
	if m.Colocated { // the default strategy cannot be split
		p.parts = []int{-k, k}
	}
	if !p.colocate {
		p.schedule = strategies[r.Intn(4)]
	}
	return p
}

// randomPins lets some weights of a model that is one split TaskGraph be sharded along any dim that is large enough.
func randomPins(r *rand.Rand, run *Run, p splitPlan) (pins []pin) {
	if len(p.parts) != 1 || p.parts[0] < 2 {
		return nil
	}
	for v := range run.Store.IterVariables() {
		if !v.Trainable || v.Shape().Rank() == 0 || r.Intn(2) > 0 {
			continue
		}
		if dim := r.Intn(v.Shape().Rank()); v.Shape().Dimensions[dim] >= p.parts[0] {
			pins = append(pins, pin{v.Path(), dim})
		}
	}
	return pins
}

// Whatever the model, its TaskGraphs and their devices, the schedule, how weights are sharded, the settings and the passes:
// one device on the same samples ends at the same weights.
func TestRandomSplitsGiveTheWeightsOfOneDevice(t *testing.T) {
	for seed := int(*firstSeed); seed < int(*firstSeed)+(*seedCount+2)/3; seed++ {
		r := rand.New(rand.NewSource(int64(seed)))
		m := PartedModels()[r.Intn(len(PartedModels()))]
		p := randomSplit(r, m)
		params, spec := randomSettings(r), randomPasses(r)
		t.Run(fmt.Sprintf("%d/%s/%s", seed, m.Name, p), func(t *testing.T) {
			t.Parallel()
			want := m.measure(t, p, 3)
			pins := randomPins(r, want, p)
			t.Logf("%v, passes %s, pins %v", params, spec, pins)
			mustBeClose(t, want, m.under(p, pins...).piped(t, p.env(t, params, epl.WithPasses(spec)), 0, sgd(), 3))
		})
	}
}
