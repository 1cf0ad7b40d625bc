// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/lstm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// attends is a model of one attention of heads of 8 features over 4 positions, with options made of what it reads.
func attends(options func(scope *model.Scope, x *graph.Node) attention.CoreOptions) Model {
	return Model{"attention", func(scope *model.Scope, x *graph.Node) *graph.Node {
		w := scope.VariableWithShape("w", shapes.Make(dtypes.Float32, 8, 3*2*8)).NodeValue(x.Graph())
		y := graph.Reshape(graph.MatMul(x, w), 4, 4, 3, 2, 8)
		part := func(i int) *graph.Node {
			return graph.Squeeze(graph.Slice(y, graph.AxisRange(), graph.AxisRange(), graph.AxisElem(i)), 2)
		}
		out, _ := attention.Core(part(0), part(1), part(2), attention.LayoutBSHD, options(scope, x))
		out = graph.Mul(out, graph.Sin(out)) // its gradient needs the result
		return graph.ReduceAndKeep(graph.Reshape(out, 16, 16), graph.ReduceSum, -1)
	}, loss.MeanSquaredError, Regression(16, 8)}
}

// recordedModels are all kinds of models that users have.
func recordedModels() map[string]Model {
	models := map[string]Model{}
	for _, m := range Models() {
		models[m.Name] = m
	}
	models["transformer"] = Model{"transformer", Transformer0, loss.SparseCategoricalCrossEntropyLogits, Tokens(4, 16, 32)}
	models["LSTM"] = Model{"lstm", func(scope *model.Scope, x *graph.Node) *graph.Node {
		_, last, _ := lstm.New(scope, graph.Reshape(x, 4, 4, 8), 5).Done()
		return graph.BroadcastToDims(graph.Reshape(graph.ReduceAllSum(last), 1, 1), 16, 1)
	}, loss.MeanSquaredError, Regression(16, 8)}
	for _, name := range []string{"batch-norm", "experts", "closures"} {
		m := partedModel(name)
		models[name] = Model{name, func(scope *model.Scope, x *graph.Node) *graph.Node {
			return m.Build(Strategies{epl.Replicate(1, "all"), epl.Replicate(1, "rest")}[:m.Least])(scope, []*graph.Node{x})[0]
		}, m.Loss, m.Batch}
	}
	models["attention"] = attends(func(*model.Scope, *graph.Node) attention.CoreOptions { return attention.CoreOptions{} })
	models["causal attention"] = attends(func(*model.Scope, *graph.Node) attention.CoreOptions {
		return attention.CoreOptions{UseCausalMask: true}
	})
	models["masked attention"] = attends(func(_ *model.Scope, x *graph.Node) attention.CoreOptions {
		return attention.CoreOptions{AttentionMask: graph.GreaterThan(graph.Reshape(graph.Slice(x, graph.AxisRange(), graph.AxisRange(0, 4)), 4, 4, 1, 4), graph.ScalarZero(x.Graph(), x.DType()))}
	})
	models["attention of lengths"] = attends(func(_ *model.Scope, x *graph.Node) attention.CoreOptions {
		n := graph.Const(x.Graph(), []int32{4, 3, 2, 1})
		return attention.CoreOptions{QuerySeqLen: n, KVSeqLen: n}
	})
	models["attention with a bias"] = biased(false)
	models["attention with a learned bias"] = biased(true)
	plain := models["attention"]
	models["checkpointed attention"] = Model{plain.Name, func(scope *model.Scope, x *graph.Node) *graph.Node {
		return plain.Build(scope, x.Checkpoint()).StopCheckpoint()
	}, plain.Loss, plain.Batch}
	return models
}

func biased(learned bool) Model {
	return attends(func(scope *model.Scope, x *graph.Node) attention.CoreOptions {
		bias := scope.VariableWithShape("bias", shapes.Make(dtypes.Float32, 1, 2, 4, 4)).SetTrainable(learned)
		return attention.CoreOptions{AttentionBias: bias.NodeValue(x.Graph())}
	})
}

// beside makes the backend "xla" one of a fake GPU with cuDNN, whose modules give zeros.
func beside(t *testing.T, o xla.Options) {
	f := pjrttest.New(t, pjrttest.Options{Platform: "cuda"})
	see := o.Compiling
	o.Compiling = func(s *ir.Segment, donate []bool, text string) {
		if see != nil {
			see(s, donate, text)
		}
		f.Program(text, xlatest.Zeros(s))
	}
	exec.Register("xla", func(string) (exec.Kind, error) { return xlatest.Kind(t, f, o), nil })
}

// A model is recorded as the same program whatever runs it, and a plan that was made on one machine holds on the other: it says for each engine
// what depends on it.
func TestProgramsAndPlansAreTheSameBesideCPUsAndGPUs(t *testing.T) {
	for name, m := range recordedModels() {
		for kind, params := range map[string]map[string]any{
			"float32":  nil,
			"bfloat16": {"amp.level": "O1", "amp.dtype": "bfloat16"},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				beside(t, xla.Options{})
				train := func(inner string, opts ...epl.Option) (*epl.Env, error) {
					env := newCluster(t, 1, 1, params, append(opts, epl.WithInner(inner))...)
					_, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 1)
					return env, err
				}
				programs := map[string]string{}
				for _, inner := range []string{"go", "cpu", "xla:fake"} {
					env, err := train(inner)
					if err != nil {
						t.Fatalf("%s: %v", inner, err)
					}
					programs[inner] = env.Plan().Program.Fingerprint
					if err := env.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if programs["go"] != programs["cpu"] || programs["go"] != programs["xla:fake"] {
					t.Errorf("the programs differ: %v", programs)
				}
				for _, from := range []string{"cpu", "xla:fake"} {
					file := filepath.Join(t.TempDir(), "plan")
					t.Setenv(epl.EnvPlanOut, file)
					env, err := train(from)
					if err == nil || !strings.Contains(err.Error(), "the plan of program") {
						t.Fatalf("on %s: %v", from, err)
					}
					_ = env.Close()
					t.Setenv(epl.EnvPlanOut, "")
					for _, on := range []string{"go", "cpu", "xla:fake"} {
						env, err := train(on, epl.WithPlan(file+".json"))
						if err != nil {
							t.Errorf("a plan of %s, on %s: %v", from, on, err)
						}
						if err := env.Close(); err != nil {
							t.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// Beside a GPU with cuDNN, attention under mixed precision is one op in the module, forward and backward, where cuDNN has it and nothing else
// needs its scores, such as the gradient of a bias.
func TestAttentionOnGPUsIsFused(t *testing.T) {
	half := map[string]any{"amp.level": "O1", "amp.dtype": "bfloat16"}
	models := recordedModels()
	for name, c := range map[string]struct {
		model  string
		params map[string]any
		off    bool
		calls  string
	}{
		"mixed precision":      {"transformer", half, false, "fmhaSoftmax"},
		"in two batches":       {"transformer", map[string]any{"amp.level": "O1", "amp.dtype": "float16", "pipeline.num_micro_batch": 2}, false, "fmhaSoftmax"},
		"recomputed":           {"transformer", map[string]any{"amp.level": "O1", "amp.dtype": "bfloat16", "gradient_checkpoint.type": "auto"}, false, "fmhaSoftmax"},
		"switched off":         {"transformer", half, true, ""},
		"float32":              {"transformer", nil, false, ""},
		"without a mask":       {"attention", half, false, "fmhaSoftmax"},
		"checkpointed by hand": {"checkpointed attention", half, false, "fmhaSoftmax"},
		"causal":               {"causal attention", half, false, "fmhaSoftmax"},
		"of lengths":           {"attention of lengths", half, false, "fmhaSoftmax"},
		"masked":               {"masked attention", half, false, ""},
		"biased":               {"attention with a bias", half, false, "fmhaScaleBiasSoftmax"},
		"with a learned bias":  {"attention with a learned bias", half, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var all strings.Builder
			var mu sync.Mutex // modules are compiled at the same time
			beside(t, xla.Options{NoCUDNN: c.off, Compiling: func(_ *ir.Segment, _ []bool, text string) {
				mu.Lock()
				defer mu.Unlock()
				all.WriteString(text)
			}})
			env := newCluster(t, 1, 1, c.params, epl.WithInner("xla:fake"))
			m := models[c.model]
			if _, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 1); err != nil {
				t.Fatal(err)
			}
			if err := env.Close(); err != nil {
				t.Fatal(err)
			}
			if c.calls == "" && strings.Contains(all.String(), "__cudnn$fmha") {
				t.Error("cuDNN is called")
			}
			for _, call := range []string{`"__cudnn$` + c.calls + `"`, `"__cudnn$` + c.calls + `Backward"`} {
				if c.calls != "" && !strings.Contains(all.String(), call) {
					t.Errorf("%s is not called", call)
				}
			}
		})
	}
}
