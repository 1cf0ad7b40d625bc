package main

import (
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl"
)

// The models. Every dim that may be sharded has as many rows as the largest stage has devices, at least.
const (
	stages     = 4
	heads      = 128
	width      = 1024
	vocabulary = 1024
	words      = 128
	samples    = 2
)

// plan makes the plan, and notes how long that took.
func (r *row) plan(layers int) error {
	cfg, err := epl.NewConfig(map[string]any{"pipeline.num_micro_batch": 2 * stages})
	if err != nil {
		return err
	}
	env, err := epl.Init(cfg)
	if err != nil {
		return err
	}
	defer env.Close()
	build := r.transformer
	if r.Model == "experts" {
		build = r.experts
	}
	store := model.NewStore()
	trainer := train.NewTrainer(env.Backend(), store, func(scope *model.Scope, inputs []*Node) []*Node { return build(scope, inputs[0], layers) },
		loss.SparseCategoricalCrossEntropyLogits, epl.Optimizer(optimizer.StochasticGradientDescent().WithDecay(false).Done()), nil, nil)
	start := time.Now()
	_, err = train.NewLoop(trainer).RunSteps(env.Dataset(sentences{}), 1)
	r.Seconds = time.Since(start).Seconds()
	if err == nil || !strings.Contains(err.Error(), os.Getenv("EPL_PLAN_OUT")) {
		return fmt.Errorf("the plan was not made: %w", err)
	}
	return nil
}

// sentences are words, and for each the next.
type sentences struct{}

func (sentences) Name() string { return "sentences" }

func (sentences) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for {
			ids, next := make([]int32, samples*words), make([]int32, samples*words)
			if !yield(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(ids, samples, words)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(next, samples, words, 1)}}, nil) {
				return
			}
		}
	}
}

// staged builds layers in stages, each split over the devices of its own.
func (r *row) staged(scope *model.Scope, ids *Node, n int, layer func(scope *model.Scope, x *Node) *Node) []*Node {
	scope = scope.WithInitializer(initializer.Zero)
	x := ids
	for s := range stages {
		epl.With(ids, epl.Split(r.Devices, fmt.Sprintf("stage %d", s)), func() {
			if s == 0 {
				x = layers.Embedding(scope.In("words"), ids, dtypes.Float32, vocabulary, width)
			}
			for i := s * n / stages; i < (s+1)*n/stages; i++ {
				x = layer(scope.In("layer_%d", i), x)
			}
			if s == stages-1 {
				x = layers.Dense(scope.In("head"), x, false, vocabulary)
			}
		})
	}
	return []*Node{x}
}

// transformer has attention and a hidden layer.
func (r *row) transformer(scope *model.Scope, ids *Node, n int) []*Node {
	return r.staged(scope, ids, n, func(scope *model.Scope, x *Node) *Node {
		y := attend(scope, norm.LayerNorm(scope.In("norm_1"), x, -1).Done())
		x = Add(x, y)
		y = layers.Dense(scope.In("hidden"), norm.LayerNorm(scope.In("norm_2"), x, -1).Done(), true, 4*width)
		return Add(x, layers.Dense(scope.In("out"), activation.Gelu(y), true, width))
	})
}

// attend is attention of many heads.
func attend(scope *model.Scope, x *Node) *Node {
	g := x.Graph()
	project := func(name string) *Node {
		w := scope.VariableWithShape(name, shapes.Make(dtypes.Float32, width, heads, width/heads)).NodeValue(g)
		return Einsum("btd,dhe->bthe", x, w)
	}
	q, k, v := project("query"), project("key"), project("value")
	scores := Softmax(Einsum("bqhe,bkhe->bhqk", q, k), -1)
	out := scope.VariableWithShape("output", shapes.Make(dtypes.Float32, heads, width/heads, width)).NodeValue(g)
	return Einsum("bthe,hed->btd", Einsum("bhqk,bkhe->bqhe", scores, v), out)
}

// experts has a mixture of as many experts as a stage has devices; each word goes to all of them, weighted by a gate.
func (r *row) experts(scope *model.Scope, ids *Node, n int) []*Node {
	return r.staged(scope, ids, n, func(scope *model.Scope, x *Node) *Node {
		g := x.Graph()
		gate := Softmax(layers.Dense(scope.In("gate"), x, false, r.Devices), -1)
		in := scope.VariableWithShape("in", shapes.Make(dtypes.Float32, r.Devices, width, 256)).NodeValue(g)
		out := scope.VariableWithShape("out", shapes.Make(dtypes.Float32, r.Devices, 256, width)).NodeValue(g)
		y := activation.Gelu(Einsum("btd,edf->btef", x, in))
		y = Einsum("btef,efd->bted", y, out)
		return Add(x, Einsum("bted,bte->btd", y, gate))
	})
}
