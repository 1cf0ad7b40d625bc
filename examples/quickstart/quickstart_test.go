package main

import (
	"bytes"
	"errors"
	"flag"
	"math"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

func newEnv(t *testing.T, opts ...epl.Option) *epl.Env {
	t.Helper()
	env, err := epl.Init(nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	return env
}

func newPlain(t *testing.T) compute.Backend {
	t.Helper()
	backend, err := newBackend(flags{}.plainBackend())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Finalize)
	return backend
}

func asItIs(ds train.Dataset) train.Dataset { return ds }

// byHand is three steps on the loss mean((x·w-y)²) in plain arithmetic. All numbers are small multiples of powers of
// two, so that float32 holds every intermediate result and there is nothing to round.
func byHand(rate, momentum float32, x [2][2]float32, y, w [2]float32) (weights, velocity [2]float32) {
	weights = w
	for range 3 {
		var gradient [2]float32
		for i := range x {
			err := x[i][0]*weights[0] + x[i][1]*weights[1] - y[i]
			gradient[0] += err * x[i][0] // 2·err·x over a batch of 2
			gradient[1] += err * x[i][1]
		}
		for j := range weights {
			velocity[j] = momentum*velocity[j] + gradient[j]
			weights[j] -= rate * velocity[j]
		}
	}
	return weights, velocity
}

func TestThreeStepsOfMomentumAreThoseComputedByHand(t *testing.T) {
	const rate, momentum = 0.25, 0.5
	x, y := [2][2]float32{{1, 0}, {1, 2}}, [2]float32{1, 3}
	wantWeights, wantVelocity := byHand(rate, momentum, x, y, [2]float32{})

	for name, backend := range map[string]compute.Backend{"EPL": newEnv(t).Backend(), "plain": newPlain(t)} {
		t.Run(name, func(t *testing.T) {
			store := model.NewStore()
			linear := func(scope *model.Scope, x *Node) *Node {
				w := scope.WithInitializer(initializer.Zero).VariableWithShape("w", shapes.Make(dtypes.Float32, 2, 1))
				return MatMul(x, w.NodeValue(x.Graph()))
			}
			opt := epl.Optimizer(Momentum{Rate: rate, Momentum: momentum})
			trainer := train.NewTrainer(backend, store, linear, loss.MeanSquaredError, opt, nil, nil)
			batch := func() train.Batch {
				return train.Batch{
					Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{x[0][:], x[1][:]})},
					Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{y[0]}, {y[1]}})},
				}
			}
			for range 3 {
				if _, err := trainer.TrainStep(batch()); err != nil {
					t.Fatalf("%+v", err)
				}
			}
			for path, want := range map[string][2]float32{"/w": wantWeights, "/momentum/w": wantVelocity} {
				v := store.GetVariable(path)
				if v == nil {
					t.Fatalf("there is no variable %s", path)
				}
				got := tensors.MustCopyFlatData[float32](v.MustValue())
				if [2]float32(got) != want {
					t.Errorf("%s is %v after three steps, by hand it is %v", path, got, want)
				}
			}
			if store.GetVariable("/momentum/w").Trainable {
				t.Error("the velocity is trainable")
			}
			if step := optimizer.GetGlobalStep(store); step != 3 {
				t.Errorf("the global step is %d, not 3", step)
			}
			if err := opt.Clear(store.RootScope()); err != nil || store.GetVariable("/momentum/w") != nil {
				t.Errorf("Clear keeps the velocity (%v)", err)
			}
		})
	}
}

func TestTrainingLowersTheLoss(t *testing.T) {
	h, err := fit(newEnv(t).Backend(), asItIs, flags{steps: 500, batch: 10})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	first, last := h.losses[0], mean(h.losses[450:]) // the last time through all samples
	if !(first > 5 && last < 2.6) {
		t.Errorf("the loss went from %v to %v", first, last)
	}
}

func mean(x []float32) float32 {
	var sum float32
	for _, v := range x {
		sum += v
	}
	return sum / float32(len(x))
}

func TestWithoutPassesEveryBitIsThatOfPlainGoMLX(t *testing.T) {
	f := flags{steps: 60, batch: 10}
	want, err := fit(newPlain(t), asItIs, f)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	env := newEnv(t, epl.WithPasses("none"))
	got, err := fit(env.Backend(), env.Dataset, f)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	sameBits(t, "losses", want.losses, got.losses)
	compared := 0
	for v := range want.store.IterVariables() {
		if w := got.store.GetVariable(v.Path()); w != nil && v.Shape().DType == dtypes.Float32 { // metrics have random names
			sameBits(t, v.Path(), tensors.MustCopyFlatData[float32](v.MustValue()), tensors.MustCopyFlatData[float32](w.MustValue()))
			compared++
		}
	}
	if compared != 8 { // weights and biases of two layers, and their velocities
		t.Errorf("%d variables were compared, not 8", compared)
	}
}

func TestTwoDevicesLearnWhatOneLearnsFromTwiceTheBatch(t *testing.T) {
	want, err := fit(newEnv(t).Backend(), asItIs, flags{steps: 50, batch: 20})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	env := newEnv(t, epl.WithLocalDevices(2))
	got, err := fit(env.Backend(), env.Dataset, flags{steps: 50, batch: 10})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	for i := range want.losses {
		if d := math.Abs(float64(want.losses[i] - got.losses[i])); !(d < 1e-4*float64(want.losses[i])) {
			t.Fatalf("step %d: the loss is %v on one device, %v on two", i, want.losses[i], got.losses[i])
		}
	}
}

func sameBits(t *testing.T, what string, want, got []float32) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%s: %d and %d numbers", what, len(want), len(got))
	}
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			t.Fatalf("%s: number %d is %v on plain GoMLX, %v on EPL", what, i, want[i], got[i])
		}
	}
}

func TestBatchesAreTheSamplesInOrderAgainAndAgain(t *testing.T) {
	ds, err := randomData(newPlain(t), 200)
	if err != nil {
		t.Fatal(err)
	}
	var firsts []float32
	for batch, err := range dataset.Take(ds, 4).Iter() {
		if err != nil {
			t.Fatal(err)
		}
		if got := batch.Inputs[0].Shape().Dimensions; got[0] != 200 || got[1] != features {
			t.Fatalf("a batch has the shape %v", got)
		}
		firsts = append(firsts, tensors.MustCopyFlatData[float32](batch.Inputs[0])[:features]...)
	}
	sameBits(t, "first samples of batches 0 and 2", firsts[:features], firsts[2*features:3*features]) // 500 = 200+200, 100 dropped
}

func TestWrongFlagsAreOneClearSentence(t *testing.T) {
	for line, want := range map[string]string{
		"-steps 0":        "quickstart: -steps is 0; train for at least 1 step",
		"-batch 501":      "quickstart: -batch is 501; a batch has from 1 to 500 samples",
		"-batch -1":       "quickstart: -batch is -1; a batch has from 1 to 500 samples",
		"now":             `quickstart: there are no arguments, only flags: remove "now", or see -help`,
		"-plain -explain": "quickstart: -explain prints what EPL understood, but with -plain there is no EPL; choose one",
		"-step 3":         "quickstart: flag provided but not defined: -step; see -help",
		"-steps three":    `quickstart: invalid value "three" for flag -steps: parse error; see -help`,
	} {
		var help bytes.Buffer
		_, err := parseFlags(strings.Fields(line), &help)
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", line, err, want)
		}
		if help.Len() > 0 {
			t.Errorf("%s prints %q besides", line, &help)
		}
	}
	err := run(flags{steps: 1, batch: 1, plain: true, backend: "nope"})
	if want := `quickstart: the backend "nope" cannot be made: can't find backend "nope"`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("an unknown backend: got %v\nwant %s…", err, want)
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	var help bytes.Buffer
	if _, err := parseFlags([]string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help gives the error %v", err)
	}
	for _, name := range []string{"-steps", "-batch", "-explain", "-backend", "-plain"} {
		if !strings.Contains(help.String(), "  "+name) {
			t.Errorf("-help does not list %s", name)
		}
	}
}
