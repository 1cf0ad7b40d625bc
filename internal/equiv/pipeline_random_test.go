package equiv

import (
	"fmt"
	"math/rand"
	randv2 "math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/passes"
)

// randomPasses switches passes on and off.
func randomPasses(r *rand.Rand) string {
	spec := "none"
	for _, p := range passes.Table {
		if !p.Needed && r.Intn(2) == 0 {
			spec += "," + p.Name
		}
	}
	return spec
}

// randomSettings draws what must not change what is learned.
func randomSettings(r *rand.Rand) map[string]any {
	return map[string]any{
		"communication.max_splits":               1 + r.Intn(6),
		"communication.num_communicators":        1 + r.Intn(3),
		"communication.sparse_as_dense":          r.Intn(2) == 0,
		"cluster.device_place_prefer_intra_node": r.Intn(2) == 0,
	}
}

// Whatever the model, the stages, the schedule, the settings and the passes: one device on the same samples ends at the
// same weights.
func TestRandomPipelinesGiveTheWeightsOfOneDevice(t *testing.T) {
	plans := allPlans()
	for seed := int(*firstSeed); seed < int(*firstSeed)+(*seedCount+1)/2; seed++ {
		r := rand.New(rand.NewSource(int64(seed)))
		m := StagedModels()[r.Intn(len(StagedModels()))]
		p := plans[r.Intn(len(plans))]
		for m.Name == "reordered" && p.perDevice > 0 {
			p = plans[r.Intn(len(plans))]
		}
		params, spec := randomSettings(r), randomPasses(r)
		t.Run(fmt.Sprintf("%d/%s/%s", seed, m.Name, p), func(t *testing.T) {
			t.Parallel()
			t.Logf("%v, passes %s", params, spec)
			want := m.alone(t, p.stages, p.batches(), sgd(), 3)
			env := p.env(t, params, epl.WithPasses(spec))
			got := m.piped(t, env, p.stages, sgd(), 3)
			mustBeClose(t, want, got)
			m.mustLoseAlike(t, env, got.Store, p.stages, m, 1e-5)
		})
	}
}

// randomStages is a random program cut into stages: each applies ops of random_ops.go to what it and the stages before
// computed, and has a weight of its own. The loss, outside, is of values of all stages.
func randomStages(seed uint64) (Staged, *Random) {
	rng := randv2.New(randv2.NewPCG(seed, 3))
	r := &Random{Seed: seed, differentiate: true, size: newSizes(rng)}
	r.size.zeros = false
	var dims [][]int
	for range 2 {
		dims = append(dims, r.size.dims(rng, 1+rng.IntN(3)))
	}
	weight := r.size.dims(rng, 1+rng.IntN(2))
	batch := func(step int) (inputs, labels []*tensors.Tensor) {
		rng := randv2.New(randv2.NewPCG(seed, uint64(1000+step)))
		for _, d := range dims {
			inputs = append(inputs, tensors.FromFlatDataAndDimensions(uniform[float32](rng, d), d...))
		}
		indices := make([]int32, 5)
		for i := range indices {
			indices[i] = int32(rng.IntN(16))
		}
		state, err := RNGStateFromSeed(int64(seed) + int64(step))
		if err != nil {
			panic(err)
		}
		return append(inputs, tensors.FromFlatDataAndDimensions(indices, len(indices)), state), nil
	}
	build := func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			g := inputs[0].Graph()
			r.text.Reset()
			p := &pool{Rand: randv2.New(randv2.NewPCG(seed, 2)), r: r, g: g, size: r.size, used: map[int]bool{}, rng: inputs[3]}
			for i, x := range inputs[:3] {
				p.put(fmt.Sprintf("input %d", i), []float64{1, 1, 16}[i], x)
			}
			loss := Scalar(g, dtypes.Float32, 0)
			for i := range stages {
				fmt.Fprintf(&r.text, "stage %d\n", i)
				stage(inputs[0], i, func() {
					w := scope.In("stage_%d", i).VariableWithShape("w", shapes.Make(dtypes.Float32, weight...)).NodeValue(g)
					own := Tanh(Mul(w, ReduceAllMean(inputs[0])))
					loss = Add(loss, ReduceAllMean(own)) // no stage is empty
					p.put("weight", 1, w)
					p.put("own", 1, own)
					for range 2 + p.IntN(8) {
						p.step()
					}
				})
			}
			for _, v := range p.values {
				if !isFloat(v) || v.Shape().Size() == 0 || p.used[v.id] && p.IntN(4) > 0 {
					continue
				}
				loss = Add(loss, ReduceAllMean(Square(Tanh(ConvertDType(v.Node, dtypes.Float32)))))
			}
			train.AddMainLoss(loss)
			return nil
		}
	}
	return Staged{"random", build, nil, batch}, r
}

// One instance gives the bits of plain GoMLX; several give what data parallel training gives, which has the same
// instances, each on one device.
func TestRandomProgramsInStagesGiveWhatTheyGiveOnOneDevice(t *testing.T) {
	plans := allPlans()
	// One step: what jumps when a weight changes by a rounding error must not.
	opt := func() optimizer.Interface {
		return optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(1)
	}
	for _, seed := range seeds() {
		rng := rand.New(rand.NewSource(int64(seed)))
		p := plans[rng.Intn(len(plans))]
		params, spec := randomSettings(rng), randomPasses(rng)
		t.Run(fmt.Sprintf("%d/%s", seed, p), func(t *testing.T) {
			t.Parallel()
			m, r := randomStages(seed)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%v, passes %s\n%s", params, spec, r)
				}
			})
			plain := m.alone(t, p.stages, 1, opt(), 1)
			one := pipelinePlan{stages: p.stages, replicas: 1, micro: 1}
			if err := SameBits(plain, m.piped(t, one.env(t, nil, epl.WithPasses("none")), p.stages, opt(), 1)); err != nil {
				t.Error("one instance:", err)
			}
			want := dataParallel(t, m, p, params, opt(), 1)
			env := p.env(t, params, epl.WithPasses(spec))
			got := m.piped(t, env, p.stages, opt(), 1)
			if err := CloseWeights(want, got, 1e-4); err != nil {
				t.Error(err)
			}
			if err := CloseLosses(want, got, 1e-4); err != nil {
				t.Error(err)
			}
			m.mustLoseAlike(t, env, got.Store, p.stages, m, 1e-4)
		})
	}
}
