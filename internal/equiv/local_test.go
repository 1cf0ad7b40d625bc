// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

func trainParallel(t testing.TB, env *epl.Env, m Model, opt optimizer.Interface, steps int) *Run {
	t.Helper()
	run, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(opt), steps)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return run
}

// GoMLX's own accumulation of gradients runs each batch by itself, and so normalises each by itself, too.
func TestBatchNormalisationIsThatOfEachInstance(t *testing.T) {
	m := Model{"mlp-batchnorm", MLP(2, 16, true), Models()[0].Loss, Regression(8, 8)}
	for _, c := range [][2]int{{2, 1}, {3, 2}, {1, 5}} {
		t.Run(fmt.Sprintf("%dx%d", c[0], c[1]), func(t *testing.T) {
			k := c[0] * c[1]
			want := accumulated(t, m, k, 5)
			got := trainParallel(t, newCluster(t, c[0], c[1], nil), m, sgd(), 5)
			for v := range want.Store.IterVariables() {
				if !v.Trainable {
					continue
				}
				x, y := numbers(v.MustValue()), numbers(got.Store.GetVariable(v.Path()).MustValue())
				if d, n := distance(x, y); d > 1e-5*(n+1e-3) {
					t.Errorf("%s differs by %g at a norm of %g", v.Path(), d, n)
				}
			}
		})
	}
}

// accumulated trains on plain GoMLX with Trainer.AccumulateGradients.
func accumulated(t *testing.T, m Model, k, steps int) *Run {
	t.Helper()
	store := newStore()
	trainer := train.NewTrainer(Plain(), store, m.Build, m.Loss, sgd(), nil, nil)
	if err := trainer.AccumulateGradients(k); err != nil {
		t.Fatal(err)
	}
	for i := range steps * k {
		in, labels := m.Batch(i)
		if _, err := trainer.TrainStep(train.Batch{Inputs: in, Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
	return &Run{Store: store}
}

func distance(x, y []float64) (diff, norm float64) {
	for i := range x {
		diff += (x[i] - y[i]) * (x[i] - y[i])
		norm += x[i] * x[i]
	}
	return math.Sqrt(diff), math.Sqrt(norm)
}

// The running averages of batch normalisation are the mean over instances of what each would have made of them.
func TestRunningAveragesAreTheMeanOverInstances(t *testing.T) {
	m := Model{"mlp-batchnorm", MLP(1, 8, true), Models()[0].Loss, Regression(8, 8)}
	got := trainParallel(t, newCluster(t, 2, 1, nil), m, sgd(), 1)
	var each []*Run
	for i := range 2 {
		one := m
		one.Batch = func(int) (in, labels []*tensors.Tensor) { return m.Batch(i) }
		each = append(each, train1(t, one, sgd(), 1, nil))
	}
	seen := 0
	for v := range got.Store.IterVariables() {
		if !strings.Contains(v.Path(), "batch_normalization") || v.Trainable {
			continue
		}
		seen++
		x := numbers(v.MustValue())
		a, b := numbers(each[0].Store.GetVariable(v.Path()).MustValue()), numbers(each[1].Store.GetVariable(v.Path()).MustValue())
		for i := range x {
			if want := (a[i] + b[i]) / 2; math.Abs(x[i]-want) > 1e-6 {
				t.Errorf("%s[%d] is %v, want %v", v.Path(), i, x[i], want)
			}
		}
	}
	if seen == 0 {
		t.Error("there are no running averages")
	}
}

// unrecognised is a number that EPL cannot tell to be a sum over the data.
func unrecognised(count *Node) *Node { return Exp(Log(count)) }

// masked is a loss over the unmasked positions only: its denominator depends on the data.
func masked(weighted bool) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x, mask := inputs[0], inputs[1]
		y := layers.Dense(scope.In("dense"), x, true, 1)
		count := unrecognised(ReduceAllSum(mask))
		loss := Div(ReduceAllSum(Mul(Square(y), mask)), count)
		train.AddMainLoss(loss)
		if weighted {
			epl.AddToCollection(epl.InstanceWeight, count)
		}
		return []*Node{y}
	}
}

func maskedBatch(step int) (inputs, labels []*tensors.Tensor) {
	in, _ := Regression(8, 4)(step)
	mask := make([]float32, 8)
	for i := range mask {
		if i%(2+step%3) == 0 {
			mask[i] = 1
		}
	}
	return []*tensors.Tensor{in[0], tensors.FromFlatDataAndDimensions(mask, 8, 1)}, nil
}

func trainMasked(t *testing.T, env *epl.Env, weighted bool, batch func(int) (in, labels []*tensors.Tensor)) *Run {
	t.Helper()
	backend, ds, opt := Plain(), train.Dataset(Dataset{batch}), sgd()
	if env != nil {
		backend, ds, opt = env.Backend(), env.Dataset(ds), epl.Optimizer(opt)
	}
	store := newStore()
	loop := train.NewLoop(train.NewTrainer(backend, store, masked(weighted), nil, opt, nil, nil))
	run := &Run{Store: store}
	loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
		run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
		return nil
	})
	if _, err := loop.RunSteps(ds, 5); err != nil {
		t.Fatalf("%+v", err)
	}
	return run
}

func TestInstanceWeightMakesAMaskedLossThatOfOneLargeBatch(t *testing.T) {
	want := trainMasked(t, nil, false, Joined(maskedBatch, 6))
	got := trainMasked(t, newCluster(t, 3, 2, nil), true, maskedBatch)
	if err := CloseWeights(want, got, 1e-5); err != nil {
		t.Error(err)
	}
	if err := CloseLosses(want, got, 1e-5); err != nil {
		t.Error(err)
	}
	without := trainMasked(t, newCluster(t, 3, 2, nil), false, maskedBatch)
	if CloseWeights(want, without, 1e-3) == nil {
		t.Error("the masks are too alike: without weights the result is the same")
	}
}

// A language model on padded sequences: attention and loss look at the tokens only, and sequences of a batch have
// different numbers of them.
func TestATransformerWithMasksTrainsAsOnOneLargeBatch(t *testing.T) {
	build := func(weighted bool) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			tokens, next, mask := inputs[0], inputs[1], inputs[2]
			logits := Transformer0(scope, tokens)
			logProbabilities := LogSoftmax(logits)
			picked := ReduceSum(Mul(logProbabilities, OneHot(next, 32, dtypes.Float32)), -1)
			count := ReduceAllSum(mask)
			train.AddMainLoss(Neg(Div(ReduceAllSum(Mul(picked, mask)), count)))
			if weighted {
				epl.AddToCollection(epl.InstanceWeight, count)
			}
			return []*Node{logits}
		}
	}
	batch := func(step int) (inputs, labels []*tensors.Tensor) {
		in, next := Tokens(2, 16, 32)(step)
		mask := make([]float32, 2*16)
		for i := range mask {
			if i%16 < 3+(5*step+7*(i/16))%13 {
				mask[i] = 1
			}
		}
		flat := make([]int32, 2*16)
		next[0].MustConstFlatData(func(x any) { copy(flat, x.([]int32)) })
		return []*tensors.Tensor{in[0], tensors.FromFlatDataAndDimensions(flat, 2, 16), tensors.FromFlatDataAndDimensions(mask, 2, 16)}, nil
	}
	run := func(env *epl.Env, weighted bool, batch func(int) (in, labels []*tensors.Tensor)) *Run {
		backend, ds, opt := Plain(), train.Dataset(Dataset{batch}), sgd()
		if env != nil {
			backend, ds, opt = env.Backend(), env.Dataset(ds), epl.Optimizer(opt)
		}
		r := &Run{Store: newStore()}
		loop := train.NewLoop(train.NewTrainer(backend, r.Store, build(weighted), nil, opt, nil, nil))
		if _, err := loop.RunSteps(ds, 5); err != nil {
			t.Fatalf("%+v", err)
		}
		return r
	}
	for _, c := range [][2]int{{2, 1}, {3, 2}, {4, 1}, {1, 5}} {
		want := run(nil, false, Joined(batch, c[0]*c[1]))
		got := run(newCluster(t, c[0], c[1], nil), true, batch)
		if err := CloseWeights(want, got, 1e-5); err != nil {
			t.Errorf("%d devices, %d micro-batches: %v", c[0], c[1], err)
		}
	}
}

func TestGradientsAreSummedIfAskedTo(t *testing.T) {
	m := Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)}
	single := m
	single.Batch = Joined(m.Batch, 4)
	// The sum of four gradients is four times the mean: the same as a learning rate four times as large.
	want := train1(t, single, optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.04), 5, nil)
	env := newCluster(t, 2, 2, map[string]any{"communication.gradients_reduce_method": "sum"})
	got := trainParallel(t, env, m, optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.01), 5)
	for v := range want.Store.IterVariables() {
		if v.Trainable {
			if d, n := distance(numbers(v.MustValue()), numbers(got.Store.GetVariable(v.Path()).MustValue())); d > 1e-5*(n+1e-3) {
				t.Errorf("%s differs by %g at a norm of %g", v.Path(), d, n)
			}
		}
	}
}

func TestGradientsThatTravelAsFloat16StayClose(t *testing.T) {
	m := Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)}
	single := m
	single.Batch = Joined(m.Batch, 4)
	want := train1(t, single, sgd(), 5, nil)
	got := trainParallel(t, newCluster(t, 4, 1, map[string]any{"communication.fp16": true}), m, sgd(), 5)
	if err := CloseWeights(want, got, 1e-3); err != nil {
		t.Error(err)
	}
	if CloseWeights(want, got, 1e-7) == nil {
		t.Error("the gradients did not travel as float16")
	}
}

// Gradients of many instances, each as large as float16 holds, must not overflow on the way.
func TestFloat16GradientsDoNotOverflowHoweverManyInstances(t *testing.T) {
	m := Model{"large", func(scope *model.Scope, x *Node) *Node {
		w := scope.VariableWithValue("w", [][]float32{{1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}})
		return MulScalar(ReduceAllSum(Dot(x, w.NodeValue(x)).Product()), 400)
	}, func(_, predictions []*Node) *Node { return predictions[0] }, Regression(2, 8)}
	got := trainParallel(t, newCluster(t, 8, 1, map[string]any{"communication.fp16": true}), m, sgd(), 2)
	for _, x := range numbers(got.Store.GetVariable("/w").MustValue()) {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			t.Errorf("a weight became %v", x)
		}
	}
}

func TestSparseAndDenseGradientsOfAnEmbeddingGiveTheSameWeights(t *testing.T) {
	m := Model{"embedding", func(scope *model.Scope, x *Node) *Node {
		e := layers.Embedding(scope.In("tokens"), x, dtypes.Float32, 32, 16, false)
		return layers.Dense(scope.In("out"), e, true, 32)
	}, Models()[1].Loss, Tokens(2, 16, 32)}
	single := m
	single.Batch = Joined(m.Batch, 6)
	want := train1(t, single, sgd(), 5, nil)
	sent := map[bool]int64{}
	for _, dense := range []bool{false, true} {
		env := newCluster(t, 3, 2, map[string]any{"communication.sparse_as_dense": dense})
		got := trainParallel(t, env, m, sgd(), 5)
		if err := CloseWeights(want, got, 1e-5); err != nil {
			t.Errorf("sparse_as_dense %v: %v", dense, err)
		}
		sent[dense] = env.Stats().Devices[0].Sent["all-gather"]
	}
	if (sent[false] == 0 && !*onGPUs) || sent[true] != 0 { // GPUs gather by themselves
		t.Errorf("all-gather sent %d bytes for sparse gradients, %d for dense ones", sent[false], sent[true])
	}
}

// Two embeddings of the same tokens have gradients with the same indices.
func TestSparseGradientsMayShareIndices(t *testing.T) {
	m := Model{"two embeddings", func(scope *model.Scope, x *Node) *Node {
		a := layers.Embedding(scope.In("a"), x, dtypes.Float32, 32, 16, false)
		b := layers.Embedding(scope.In("b"), x, dtypes.Float32, 32, 16, false)
		return layers.Dense(scope.In("out"), Mul(Tanh(a), b), true, 32)
	}, Models()[1].Loss, Tokens(2, 16, 32)}
	single := m
	single.Batch = Joined(m.Batch, 4)
	want := train1(t, single, sgd(), 5, nil)
	got := trainParallel(t, newCluster(t, 2, 2, nil), m, sgd(), 5)
	if err := CloseWeights(want, got, 1e-5); err != nil {
		t.Error(err)
	}
}

// Every model runs on several devices, also those whose random bits make them differ from one device.
func TestEveryModelTrainsOnSeveralDevices(t *testing.T) {
	for _, m := range Models() {
		trainParallel(t, newCluster(t, 3, 2, nil), m, sgd(), 3)
	}
}

// clipping optimizers that clip hard: at a norm far below that of the gradients.
func TestGradientsAreClippedPerInstanceOrAfterReduction(t *testing.T) {
	m := Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)}
	clips := map[string]func(optimizer.Interface) optimizer.Interface{
		"global norm": func(o optimizer.Interface) optimizer.Interface { return epl.ClipByGlobalNorm(o, 0.01) },
		"value":       func(o optimizer.Interface) optimizer.Interface { return epl.ClipByValue(o, 0.001) },
	}
	for name, clip := range clips {
		single := m
		single.Batch = Joined(m.Batch, 4)
		after := train1(t, single, clip(sgd()), 5, nil) // one device clips the gradient of all samples
		got := trainParallel(t, newCluster(t, 4, 1, map[string]any{"communication.clip_after_allreduce": true}), m, clip(sgd()), 5)
		if err := CloseWeights(after, got, 1e-5); err != nil {
			t.Errorf("%s, after reduction: %v", name, err)
		}
		local := trainParallel(t, newCluster(t, 4, 1, nil), m, clip(sgd()), 5)
		if CloseWeights(after, local, 1e-6) == nil {
			t.Errorf("%s: clipping each instance's gradients changed nothing", name)
		}
	}
}

// GoMLX's own clipping belongs to the optimizer: it works on reduced gradients.
func TestGoMLXClippingWorksOnReducedGradients(t *testing.T) {
	m := Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)}
	build := m.Build
	m.Build = func(scope *model.Scope, x *Node) *Node {
		scope.Store().SetParam("/"+optimizer.ParamClipStepByValue, 1e-5)
		return build(scope, x)
	}
	single := m
	single.Batch = Joined(m.Batch, 4)
	want := train1(t, single, sgd(), 5, nil)
	got := trainParallel(t, newCluster(t, 2, 2, nil), m, sgd(), 5)
	if err := CloseWeights(want, got, 1e-5); err != nil {
		t.Error(err)
	}
}

// masks returns the dropout masks of all instances of one step.
func masks(t *testing.T, devices, micro int) [][]float64 {
	t.Helper()
	env := newCluster(t, devices, micro, nil)
	var out [][]float64
	// A training step by hand, which returns the masked values themselves.
	exec, err := model.NewExec(env.Backend(), newStore(), func(scope *model.Scope, x *Node) *Node {
		scope.Store().SetTraining(x.Graph(), true)
		w := scope.VariableWithValue("w", float32(1))
		y := Mul(layers.DropoutStatic(scope, OnesLike(x), 0.5), w.NodeValue(x))
		epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), ReduceAllMean(y))
		epl.AddToCollection(epl.GlobalConcat, y)
		return y
	})
	if err != nil {
		t.Fatal(err)
	}
	for batch, err := range env.Dataset(Dataset{Regression(4, 32)}).Iter() {
		if err != nil {
			t.Fatal(err)
		}
		results, err := exec.Call(batch.Inputs[0])
		if err != nil {
			t.Fatalf("%+v", err)
		}
		all := numbers(results[0])
		n := len(all) / (devices * micro)
		for i := range devices * micro {
			out = append(out, all[i*n:(i+1)*n])
		}
		break
	}
	return out
}

func TestDropoutMasksDifferBetweenInstancesAndRepeatBetweenRuns(t *testing.T) {
	first, second := masks(t, 3, 2), masks(t, 3, 2)
	if len(first) != 6 {
		t.Fatalf("%d masks", len(first))
	}
	for i := range first {
		if d, _ := distance(first[i], second[i]); d != 0 {
			t.Errorf("instance %d has other bits in a second run", i)
		}
		for j := range i {
			if d, _ := distance(first[i], first[j]); d == 0 {
				t.Errorf("instances %d and %d have the same mask", j, i)
			}
		}
	}
	one := masks(t, 1, 2)
	if d, _ := distance(one[0], first[0]); d != 0 {
		t.Error("instance 0 has other bits than on one device")
	}
}

// finite is a dataset that ends.
type finite struct {
	batch func(int) (in, labels []*tensors.Tensor)
	n     int
}

func (d finite) Name() string { return "finite" }

func (d finite) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for i := range d.n {
			in, labels := d.batch(i)
			if !yield(train.Batch{Inputs: in, Labels: labels}, nil) {
				return
			}
		}
	}
}

func TestAnIncompleteLastStepTakesTheMeanOverWhatItHas(t *testing.T) {
	m := Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)}
	for n := 7; n <= 12; n++ { // steps of 6: one full, one with 1 to 6 batches
		batch := func(step int) (in, labels []*tensors.Tensor) {
			k := 6
			if step == 1 {
				k = n - 6
			}
			shifted := func(i int) (in, labels []*tensors.Tensor) { return m.Batch(step*6 + i) }
			return Joined(shifted, k)(0)
		}
		single := m
		single.Batch = batch
		want := train1(t, single, sgd(), 2, nil)
		env := newCluster(t, 3, 2, nil)
		got, err := TrainOn(env.Backend(), env.Dataset(finite{m.Batch, n}), m, epl.Optimizer(sgd()), 2)
		if err != nil {
			t.Fatalf("%d batches: %+v", n, err)
		}
		if err := CloseWeights(want, got, 1e-5); err != nil {
			t.Errorf("%d batches: %v", n, err)
		}
	}
}

func TestEvaluationSeesEverySampleOnceWhateverTheNumberOfDevices(t *testing.T) {
	m := Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)}
	var want float32
	for _, devices := range []int{1, 3} {
		env := newCluster(t, devices, 2, nil)
		store := newStore()
		trainer := train.NewTrainer(env.Backend(), store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil)
		metrics, err := trainer.Eval(env.Dataset(finite{m.Batch, 7}))
		if err != nil {
			t.Fatalf("%+v", err)
		}
		got := tensors.ToScalar[float32](metrics[0])
		if devices == 1 {
			want = got
		} else if got != want {
			t.Errorf("the loss is %v on %d devices, %v on one", got, devices, want)
		}
	}
}

func TestVariablesOfATrainedModelServeOtherPrograms(t *testing.T) {
	m := Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)}
	env := newCluster(t, 3, 1, nil)
	run := trainParallel(t, env, m, sgd(), 3)
	predict := model.MustNewExec(env.Backend(), run.Store, func(scope *model.Scope, x *Node) *Node { return m.Build(scope, x) })
	in, _ := m.Batch(0)
	a, err := predict.Call(in[0])
	if err != nil {
		t.Fatalf("%+v", err)
	}
	// And training goes on from what another program changed.
	double := model.MustNewExec(env.Backend(), run.Store, func(scope *model.Scope, g *Graph) *Node {
		for v := range scope.Store().IterVariables() {
			if v.Trainable {
				v.SetNodeValue(MulScalar(v.NodeValue(g), 2))
			}
		}
		return ScalarOne(g, dtypes.Float32)
	})
	if _, err := double.Call(); err != nil {
		t.Fatalf("%+v", err)
	}
	in, _ = m.Batch(0)
	b, err := predict.Call(in[0])
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if d, _ := distance(numbers(a[0]), numbers(b[0])); d == 0 {
		t.Error("doubling the weights changed no prediction")
	}
}
