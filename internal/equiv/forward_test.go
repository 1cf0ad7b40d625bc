// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"io"
	"log"
	"math"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/metric"

	"github.com/easyparallel/epl"
)

// spread is a mean over batches of how far predictions are from zero: a metric with state, for any model.
func spread() []metric.Interface {
	return []metric.Interface{metric.NewMeanMetric("spread", "s", "spread", func(_ *model.Scope, _, predictions []*Node) *Node {
		return ReduceAllMean(Abs(ConvertDType(predictions[0], dtypes.Float32)))
	}, nil)}
}

// outcome is what evaluation and prediction give: metrics after all batches, and predictions for one.
type outcome struct{ metrics, predictions []float64 }

// evaluate evaluates a model on a dataset, and predicts for a batch of it.
func (m Staged) evaluate(backend compute.Backend, store *model.Store, stages int, ds train.Dataset, batch func() (in, labels []*tensors.Tensor)) (o outcome, err error) {
	trainer := train.NewTrainer(backend, store, m.Build(stages), m.Loss, sgd(), nil, spread())
	metrics, err := trainer.Eval(ds)
	if err != nil {
		return o, err
	}
	for _, x := range metrics {
		o.metrics = append(o.metrics, numbers(x)...)
	}
	exec, err := model.NewExec(backend, store, func(scope *model.Scope, inputs []*Node) []*Node {
		scope.Store().SetTraining(inputs[0].Graph(), false)
		predictions := m.Build(stages)(scope, inputs)[:1]
		if m.Loss == nil { // GoMLX cannot run what comes after all results
			predictions = append(predictions, train.TotalLoss(inputs[0].Graph()))
		}
		return predictions
	})
	if err != nil {
		return o, err
	}
	in, _ := batch()
	var args []any
	for _, x := range in {
		args = append(args, x)
	}
	predictions, err := exec.Call(args...)
	if err == nil {
		o.predictions = numbers(predictions[0])
	}
	return o, err
}

// mustEvaluateAlike compares evaluation and prediction by EPL with those of one device that has the same weights.
func (m Staged) mustEvaluateAlike(t *testing.T, env *epl.Env, store *model.Store, stages int, sizes ...int) {
	t.Helper()
	n := 0
	for _, s := range sizes {
		n += s
	}
	if err := m.evaluateAlike(env, store, stages, samplesOf(m.Batch, n), sizes...); err != nil {
		t.Errorf("%v", err)
	}
}

// evaluateAlike compares evaluation and prediction by EPL with those of one device that has the same weights.
func (m Staged) evaluateAlike(env *epl.Env, store *model.Store, stages int, all samples, sizes ...int) error {
	copied, err := store.Clone()
	if err != nil {
		return err
	}
	one := func() (in, labels []*tensors.Tensor) { x := all.rows(0, sizes[0]); return x.inputs, x.labels }
	want, err := m.evaluate(Plain(), copied, stages, all.inBatches(sizes...), one)
	if err != nil {
		return err
	}
	got, err := m.evaluate(env.Backend(), store, stages, env.Dataset(all.inBatches(sizes...)), one)
	if err != nil {
		return err
	}
	if len(want.metrics) != len(got.metrics) {
		return fmt.Errorf("metrics are %v, not %v", got.metrics, want.metrics)
	}
	for i, x := range want.metrics {
		if !(math.Abs(x-got.metrics[i]) <= 1e-5*(math.Abs(x)+1e-3)) {
			return fmt.Errorf("metric %d is %v, not %v", i, got.metrics[i], x)
		}
	}
	if d, n := distance(want.predictions, got.predictions); len(want.predictions) != len(got.predictions) || !(d <= 1e-5*(n+1e-3)) {
		return fmt.Errorf("predictions differ by %g at a norm of %g", d, n)
	}
	return nil
}

// mustLoseAlike compares the losses of evaluation and prediction by EPL with those of one device that has the same weights. whole is
// the model for one device.
func (m Staged) mustLoseAlike(t *testing.T, env *epl.Env, store *model.Store, stages int, whole Staged, tolerance float64) {
	t.Helper()
	copied, err := store.Clone()
	if err != nil {
		t.Fatal(err)
	}
	var losses [2][]float64
	for k, m := range []Staged{whole, m} {
		env, store, ds := env, store, train.Dataset(finite{m.Batch, 3})
		if k == 0 {
			env, store = newEnv(t, "none"), copied
		}
		if m.Loss != nil {
			last, err := train.NewTrainer(env.Backend(), store, m.Build(stages), m.Loss, sgd(), nil, nil).Eval(env.Dataset(ds))
			if err != nil {
				t.Fatalf("%v", err)
			}
			losses[k] = numbers(last[0])
			continue
		}
		exec := model.MustNewExec(env.Backend(), store, func(scope *model.Scope, inputs []*Node) []*Node {
			scope.Store().SetTraining(inputs[0].Graph(), false)
			m.Build(stages)(scope, inputs)
			loss := train.TotalLoss(inputs[0].Graph())
			total := scope.In("total").VariableWithValue("sum", float32(0)).SetTrainable(false) // as a metric does
			total.SetNodeValue(Add(total.NodeValue(loss.Graph()), loss))
			return []*Node{total.NodeValue(loss.Graph())}
		})
		for _, ds := range []train.Dataset{env.Dataset(ds), ds} {
			for batch, err := range ds.Iter() {
				if err != nil {
					t.Fatal(err)
				}
				var args []any
				for _, x := range batch.Inputs {
					args = append(args, x)
				}
				outs, err := exec.Call(args...)
				if err != nil {
					t.Fatalf("%v", err)
				}
				losses[k] = append(losses[k], numbers(outs[0])...)
			}
		}
	}
	for i, x := range losses[0] {
		if y := losses[1][i]; !(math.Abs(x-y) <= tolerance*(math.Abs(x)+1e-3)) {
			t.Errorf("loss %d of evaluation and prediction is %v, not %v", i, y, x)
		}
	}
}

// inOneLine is what Explain says, in one line.
func inOneLine(t testing.TB, env *epl.Env) string {
	t.Helper()
	return strings.Join(strings.Fields(explained(t, env)), " ")
}

// forwardPrograms counts the programs that Explain says run under the plan of a training program.
func forwardPrograms(t testing.TB, env *epl.Env) int {
	t.Helper()
	return strings.Count(inOneLine(t, env), "runs forward under the plan of training program")
}

func TestEvaluationAndPredictionUnderThePlanOfASplit(t *testing.T) {
	for i, m := range PartedModels() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			plans := m.somePlans(int64(i) + 100)
			for _, p := range append(plans[:(len(plans)+1)/2], m.whole(2, 1, 1)) {
				t.Run(p.String(), func(t *testing.T) {
					var params map[string]any
					if i%3 == 0 { // they share their weights
						params, p.replicas = map[string]any{"zero.level": "v2"}, 2
					}
					env := p.env(t, params)
					x := m.under(p)
					run := x.piped(t, env, 0, sgd(), 2)
					x.mustEvaluateAlike(t, env, run.Store, 0, 8, 8, 3)
					if n := forwardPrograms(t, env); n < 3 { // two batch sizes, and predictions
						t.Errorf("%d programs run under the plan", n)
					}
				})
			}
		})
	}
}

func TestEvaluationAndPredictionUnderThePlanOfAPipeline(t *testing.T) {
	for i, m := range StagedModels() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			p := fewPlans()[i%len(fewPlans())]
			env := p.env(t, nil)
			run := m.piped(t, env, p.stages, sgd(), 2)
			m.mustEvaluateAlike(t, env, run.Store, p.stages, 4, 4, 1)
			if n := forwardPrograms(t, env); n < 3 {
				t.Errorf("%d programs run under the plan", n)
			}
		})
	}
}

// The model has no annotations: ops of evaluation are where EPL put the variables that they read.
func TestEvaluationUnderStagesThatEPLCut(t *testing.T) {
	for _, m := range []Model{plainMLP(), blocksOfTransformer(3)} {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			env := newPipeline(t, 4, 2, map[string]any{"auto.auto_parallel": true, "pipeline.num_stages": 2})
			run, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 2)
			if err != nil {
				t.Fatalf("%v", err)
			}
			m.staged().mustEvaluateAlike(t, env, run.Store, 0, 4, 4, 1)
			if n := forwardPrograms(t, env); n < 3 {
				t.Errorf("%d programs run under the plan", n)
			}
		})
	}
}

// largeLimit is the memory of devices that are smaller than the model: it has 8 MB of weights, most of which are not trained.
const largeLimit = 6 << 20

// large is a model of two TaskGraphs.
func large(strategies ...epl.Strategy) Staged {
	const width = 8000
	block := func(scope *model.Scope, x *Node) *Node {
		frozen := func(name string, dims ...int) *Node {
			return scope.VariableWithShape(name, shapes.Make(dtypes.Float32, dims...)).SetTrainable(false).NodeValue(x.Graph())
		}
		x = MatMul(Tanh(MatMul(x, frozen("up", 64, width))), frozen("down", width, 64))
		return Tanh(layers.Dense(scope, x, true, 64))
	}
	return Staged{"large", func(int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			epl.With(x, strategies[0], func() { x = block(scope.In("first"), layers.Dense(scope.In("in"), x, true, 64)) })
			epl.With(x, strategies[1], func() { x = layers.Dense(scope.In("out"), block(scope.In("second"), x), true, 5) })
			return []*Node{x}
		}
	}, loss.SparseCategoricalCrossEntropyLogits, Classes(4, 8, 5)}
}

// A model that fits into no single device trains, evaluates and predicts: variables are not gathered.
func TestAModelLargerThanADeviceEvaluatesAndPredicts(t *testing.T) {
	for name, m := range map[string]Staged{
		"split":  large(epl.Split(2, "a"), epl.Split(2, "b")),
		"stages": large(epl.Replicate(1, "a"), epl.Replicate(1, "b")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			params := map[string]any{"cluster.device_memory": largeLimit, "cluster.colocate_split_and_replicate": name == "split"}
			env := newCluster(t, 2, 1, params)
			run := m.piped(t, env, 0, sgd(), 2)
			env.Stats()
			m.mustEvaluateAlike(t, env, run.Store, 0, 2, 2, 1)
			for d, s := range env.Stats().Devices {
				if s.Runs != 4 || s.PeakBytes > largeLimit {
					t.Errorf("device %d ran %d programs, with %d bytes", d, s.Runs, s.PeakBytes)
				}
			}
			m.piped(t, env, 0, sgd(), 1) // and trains on
		})
	}
}

// Evaluated before training, a program is planned by its annotations; and again, when a training program has its variables.
func TestEvaluationBeforeTraining(t *testing.T) {
	for _, p := range []splitPlan{{parts: []int{2}, replicas: 2, micro: 1}, {parts: []int{-1, -1}, replicas: 1, micro: 2}, {parts: []int{-1, 3}, replicas: 1, micro: 1}} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			m, env := partedModel("mlp").under(p), p.env(t, nil)
			store := newStore()
			trainer := train.NewTrainer(env.Backend(), store, m.Build(0), m.Loss, epl.Optimizer(sgd()), nil, spread())
			eval := func() (all []float64) {
				metrics, err := trainer.Eval(env.Dataset(finite{m.Batch, 3}))
				if err != nil {
					t.Fatalf("%v", err)
				}
				for _, x := range metrics {
					all = append(all, numbers(x)...)
				}
				return all
			}
			check := func(got []float64) {
				t.Helper()
				copied, err := store.Clone()
				if err != nil {
					t.Fatal(err)
				}
				want, err := m.evaluate(Plain(), copied, 0, finite{m.Batch, 3}, func() (in, labels []*tensors.Tensor) { return m.Batch(0) })
				if err != nil {
					t.Fatal(err)
				}
				if d, n := distance(want.metrics, got); d > 1e-5*n {
					t.Errorf("metrics are %v, not %v", got, want.metrics)
				}
			}
			check(eval())
			if n := forwardPrograms(t, env); n != 0 {
				t.Errorf("%d programs follow a training program before there is one", n)
			}
			if _, err := train.NewLoop(trainer).RunSteps(env.Dataset(Dataset{m.Batch}), 2); err != nil {
				t.Fatalf("%v", err)
			}
			check(eval())
			if n := forwardPrograms(t, env); n != 1 {
				t.Errorf("%d programs follow the training program", n)
			}
		})
	}
}

// Random bits are those of one device, and their state goes on.
func TestRandomNumbersOfPredictionsAreThoseOfOneDevice(t *testing.T) {
	p := splitPlan{parts: []int{-1, 2}, replicas: 1, micro: 1}
	m, env := partedModel("mlp").under(p), p.env(t, nil)
	run := m.piped(t, env, 0, sgd(), 2)
	copied, err := run.Store.Clone()
	if err != nil {
		t.Fatal(err)
	}
	var results [2]string
	for k, backend := range []compute.Backend{Plain(), env.Backend()} {
		exec := model.MustNewExec(backend, []*model.Store{copied, run.Store}[k], func(scope *model.Scope, inputs []*Node) []*Node {
			scope.Store().SetTraining(inputs[0].Graph(), false)
			y := m.Build(0)(scope, inputs)[0]
			return []*Node{scope.Store().RandomNormal(y.Graph(), y.Shape()), inputs[0]}
		})
		for range 3 {
			in, _ := m.Batch(0)
			outs, err := exec.Call(in[0])
			if err != nil {
				t.Fatalf("%v", err)
			}
			results[k] += fmt.Sprint(numbers(outs[0]), numbers(outs[1]))
		}
	}
	if results[0] != results[1] {
		t.Error("random numbers differ from those of one device")
	}
}

// plainMLP has no annotations.
func plainMLP() Model {
	return Model{"mlp", func(scope *model.Scope, x *Node) *Node {
		for i := range 4 {
			x = Tanh(layers.Dense(scope.In("layer_%d", i), x, true, 16))
		}
		return layers.Dense(scope.In("out"), x, true, 1)
	}, loss.MeanSquaredError, Regression(4, 8)}
}

// staged is a model without annotations, whatever the number of stages.
func (m Model) staged() Staged {
	return Staged{m.Name, func(int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node { return []*Node{m.Build(scope, inputs[0])} }
	}, m.Loss, m.Batch}
}

// goMetric is updated in Go, from each batch's own result.
type goMetric struct {
	metric.Interface
	seen []float64
}

func (m *goMetric) UpdateGo(x *tensors.Tensor) { m.seen = append(m.seen, numbers(x)...) }
func (m *goMetric) ReadGo() *tensors.Tensor    { return tensors.FromScalar(float32(len(m.seen))) }
func (m *goMetric) UpdateGraph(_ *model.Scope, _, predictions []*Node) *Node {
	return ReduceAllMean(ConvertDType(predictions[0], dtypes.Float32))
}

// With model replicas, batches are dealt to them: every call gives what one device gives, and each device runs its share.
func TestEvaluationBatchesAreDealtToModelReplicas(t *testing.T) {
	for _, p := range []splitPlan{
		{parts: []int{-1}, replicas: 2, micro: 1},
		{parts: []int{-1}, replicas: 3, micro: 2},
		{parts: []int{2}, replicas: 2, micro: 1},
		{parts: []int{-1, -1}, replicas: 2, micro: 2},
		{parts: []int{-2, 2}, colocate: true, replicas: 2, micro: 1},
	} {
		for _, name := range []string{"mlp", "convolution", "transformer", "experts"} {
			m := partedModel(name)
			if len(p.parts) < m.Least || m.Colocated && !p.colocate {
				continue
			}
			t.Run(name+"/"+p.String(), func(t *testing.T) {
				t.Parallel()
				env, x := p.env(t, nil), m.under(p)
				run := x.piped(t, env, 0, sgd(), 2)
				sizes := []int{4, 4, 4, 4, 4, 4, 3}
				all := samplesOf(m.Batch, 27)
				copied, err := run.Store.Clone()
				if err != nil {
					t.Fatal(err)
				}
				eval := func(backend compute.Backend, store *model.Store, ds train.Dataset) (seen, metrics []float64) {
					g := &goMetric{Interface: metric.NewBaseMetric("go", "g", "go", distanceOf, nil)}
					trainer := train.NewTrainer(backend, store, x.Build(0), m.Loss, sgd(), nil, append(spread(), g))
					for range 2 {
						last, err := trainer.Eval(ds)
						if err != nil {
							t.Fatalf("%v", err)
						}
						for _, v := range last {
							metrics = append(metrics, numbers(v)...)
						}
					}
					return g.seen, metrics
				}
				wantSeen, want := eval(Plain(), copied, all.inBatches(sizes...))
				env.Stats()
				gotSeen, got := eval(env.Backend(), run.Store, env.Dataset(all.inBatches(sizes...)))
				for _, x := range [][2][]float64{{wantSeen, gotSeen}, {want, got}} {
					if d, n := distance(x[0], x[1]); len(x[0]) != len(x[1]) || !(d <= 1e-5*(n+1e-3)) {
						t.Errorf("%v, not %v", x[1], x[0])
					}
				}
				// 14 batches, of which 12 are of one program and 2 of another; each is computed in two halves.
				for d, s := range env.Stats().Devices {
					least, most := 12/p.replicas, 12/p.replicas+2
					if runs := s.Runs; d%p.devices() == 0 && (runs < 2*least || runs > 2*most) || d%p.devices() > 0 && (runs < least || runs > most) {
						t.Errorf("device %d ran %d programs", d, runs)
					}
				}
				if text := inOneLine(t, env); !strings.Contains(text, fmt.Sprintf("batches of env.Dataset are dealt to %d model replicas", p.replicas)) {
					t.Error("Explain does not say that batches are dealt")
				}
			})
		}
	}
}

// Random numbers of a program depend on those before: nothing can be computed ahead.
func TestEvaluationThatDrawsRandomNumbersRunsBatchByBatch(t *testing.T) {
	m := plainMLP()
	noisy := func(scope *model.Scope, inputs []*Node) []*Node {
		x := Add(inputs[0], scope.Store().RandomNormal(inputs[0].Graph(), inputs[0].Shape()))
		return []*Node{m.Build(scope, x)}
	}
	env := newCluster(t, 2, 1, nil)
	var metrics [2][]float64
	for k, backend := range []compute.Backend{Plain(), env.Backend()} {
		ds := train.Dataset(finite{m.Batch, 5})
		if k == 1 {
			ds = env.Dataset(ds)
		}
		last, err := train.NewTrainer(backend, newStore(), noisy, m.Loss, sgd(), nil, spread()).Eval(ds)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range last {
			metrics[k] = append(metrics[k], numbers(v)...)
		}
	}
	if d, n := distance(metrics[0], metrics[1]); d > 1e-5*n {
		t.Errorf("metrics are %v, not %v", metrics[1], metrics[0])
	}
	if !strings.Contains(inOneLine(t, env), "batches of env.Dataset are computed one after the other") {
		t.Error("Explain does not say that batches run one after the other")
	}
}

// What is computed ahead is of the variables of that time: training between batches of an evaluation is seen by the next.
func TestTrainingBetweenBatchesOfAnEvaluation(t *testing.T) {
	m := plainMLP()
	env := newCluster(t, 2, 1, nil)
	var losses [2][]float64
	for k, backend := range []compute.Backend{Plain(), env.Backend()} {
		opt, steps, ds := sgd(), train.Dataset(Dataset{Joined(m.Batch, 2)}), train.Dataset(finite{m.Batch, 6})
		if k == 1 {
			opt, steps, ds = epl.Optimizer(opt), env.Dataset(Dataset{m.Batch}), env.Dataset(ds)
		}
		trainer := train.NewTrainer(backend, newStore(), func(scope *model.Scope, inputs []*Node) []*Node {
			return []*Node{m.Build(scope, inputs[0])}
		}, m.Loss, opt, nil, nil)
		loop := train.NewLoop(trainer)
		for batch, err := range ds.Iter() {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := loop.RunSteps(steps, 1); err != nil {
				t.Fatalf("%v", err)
			}
			metrics, err := trainer.EvalStep(batch)
			if err != nil {
				t.Fatalf("%v", err)
			}
			if losses[k] = append(losses[k], numbers(metrics[0])...); len(losses[k]) == 5 {
				break
			}
		}
	}
	if d, n := distance(losses[0], losses[1]); d > 1e-5*n {
		t.Errorf("losses are %v, not %v", losses[1], losses[0])
	}
}

// Workers with data of their own evaluate all of them together: round by round, worker by worker, the same on each.
func TestEvaluationOverWorkersWithDataOfTheirOwn(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1}, {num: 2, devices: 2, hosts: "a,b"}, {num: 3, devices: 2}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "evaluation of slices") })
	}
}

func init() {
	parts["evaluation of slices"] = func(w *part) error {
		log.SetOutput(io.Discard)
		m := regression()
		noisy := func(scope *model.Scope, x *Node) *Node {
			return m.Build(scope, Add(x, scope.Store().RandomNormal(x.Graph(), x.Shape())))
		}
		for i, s := range streams {
			env, err := w.init(map[string]any{"io.slicing": true})
			if err != nil {
				return err
			}
			defer env.Close()
			build, devices := m.Build, 1 // of a model replica
			switch {
			case i%3 == 1:
				build = noisy
			case i%3 == 2 && len(env.Cluster().LocalDevices()) == 2:
				build, devices = wide(2), 2
			}
			of := func(worker int) samples {
				total := 0
				for _, n := range s.sizes(worker) {
					total += n
				}
				return samplesOf(func(step int) (in, labels []*tensors.Tensor) { return m.Batch(1000*worker + step) }, total)
			}
			mine := env.Cluster().WorkerIndex()
			trained := m
			trained.Build = build
			run, err := oneEpoch(env, trained, of(mine).inBatches(s.sizes(mine)...))
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			copied, err := run.Store.Clone()
			if err != nil {
				return err
			}
			ordered := custom(func(yield func(train.Batch, error) bool) {
				num := env.Cluster().WorkerNum()
				taken, next := make([]int, num), make([]int, num)
				for _, step := range takeTurns(num, len(env.Cluster().LocalDevices())/devices, s.sizes) {
					for worker := range step {
						for n := step[worker]; n > 0; next[worker]++ {
							size := s.sizes(worker)[next[worker]]
							b := of(worker).rows(taken[worker], taken[worker]+size)
							taken[worker] += size
							n -= size
							if !yield(train.Batch{Inputs: b.inputs, Labels: b.labels}, nil) {
								return
							}
						}
					}
				}
			})
			var seen [2][]float64
			for k, backend := range []compute.Backend{Plain(), env.Backend()} {
				store, ds := copied, train.Dataset(ordered)
				if k == 1 {
					store, ds = run.Store, env.Dataset(of(mine).inBatches(s.sizes(mine)...))
				}
				g := &goMetric{Interface: metric.NewBaseMetric("go", "g", "go", distanceOf, nil)}
				last, err := train.NewTrainer(backend, store, build, m.Loss, sgd(), nil, append(spread(), g)).Eval(ds)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				for _, v := range last {
					seen[k] = append(seen[k], numbers(v)...)
				}
				seen[k] = append(seen[k], g.seen...)
			}
			fmt.Println(s.name, seen[1])
			if d, n := distance(seen[0], seen[1]); len(seen[0]) != len(seen[1]) || !(d <= 1e-5*n) {
				return fmt.Errorf("%s: evaluation gives %v, not %v", s.name, seen[1], seen[0])
			}
		}
		return nil
	}
}

// One worker evaluates while the others train on: on a model replica of its own, or on variables that it reads from the others.
func TestOneWorkerEvaluatesByItself(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 2}, {num: 2, devices: 1}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "evaluation by the first") })
	}
}

func init() {
	parts["evaluation by the first"] = func(w *part) error {
		m, stages := stagedMLP(), 2
		env, err := w.init(map[string]any{"cluster.colocate_split_and_replicate": false})
		if err != nil {
			return err
		}
		defer env.Close()
		run := &Run{Store: newStore()}
		trainer := train.NewTrainer(env.Backend(), run.Store, m.Build(stages), m.Loss, epl.Optimizer(sgd()), nil, spread())
		loop := train.NewLoop(trainer)
		loop.OnStep("evaluate", 0, env.OnFirstWorker(func(*train.Loop, []*tensors.Tensor) error {
			got, err := trainer.Eval(finite{m.Batch, 3})
			if err != nil {
				return err
			}
			copied, err := run.Store.Clone()
			if err != nil {
				return err
			}
			want, err := train.NewTrainer(Plain(), copied, m.Build(stages), m.Loss, sgd(), nil, spread()).Eval(finite{m.Batch, 3})
			if err != nil {
				return err
			}
			for i := range want {
				if x, y := numbers(want[i])[0], numbers(got[i])[0]; !(math.Abs(x-y) <= 1e-5*math.Abs(x)) {
					return fmt.Errorf("metric %d is %v, not %v", i, y, x)
				}
			}
			return nil
		}))
		if _, err := loop.RunSteps(env.Dataset(Dataset{m.Batch}), 3); err != nil {
			return err
		}
		if env.IsMain() {
			var text strings.Builder
			if err := env.Explain(&text); err != nil {
				return err
			}
			local := len(env.Cluster().LocalDevices()) == stages
			if together := strings.Contains(text.String(), "which run it together"); together == local {
				return fmt.Errorf("workers evaluate together: %v; a model replica is on the worker: %v", together, local)
			}
		}
		w.report("trained", run)
		return nil
	}
}
