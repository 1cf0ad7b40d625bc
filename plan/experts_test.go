// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
)

// wideClassifier has convolutions, and far more weights behind them, for its classes.
func wideClassifier(batch, classes int) equiv.Model {
	return equiv.Model{
		Name: "wide classifier",
		Build: func(scope *model.Scope, x *Node) *Node {
			for i := range 8 {
				x = activation.Relu(layers.Convolution(scope.In("conv_%d", i), x).Channels(256).KernelSize(3).PadSame().Done())
			}
			x = layers.Dense(scope.In("features"), ReduceMean(x, 1, 2), true, 2048)
			return layers.Dense(scope.In("head"), x, true, classes)
		},
		Loss: loss.SparseCategoricalCrossEntropyLogits,
		Batch: func(int) (inputs, labels []*tensors.Tensor) {
			return []*tensors.Tensor{tensors.FromShape(shapes.Make(dtypes.Float32, batch, 28, 28, 64))}, []*tensors.Tensor{tensors.FromShape(shapes.Make(dtypes.Int32, batch, 1))}
		},
	}
}

// wideTransformer is too large for a device.
func wideTransformer(layers, width, batch, length int) equiv.Model {
	return equiv.Model{
		Name: "transformer",
		Build: func(scope *model.Scope, x *Node) *Node {
			return transformer.New(scope).WithVocabSize(32768).WithEmbedDim(width).WithNumLayers(layers).WithNumHeads(32).
				WithHeadDim(width/32).WithMaxPosEmbed(length).WithCausalMask(true).Logits(x, transformer.CallOptions{})
		},
		Loss:  loss.SparseCategoricalCrossEntropyLogits,
		Batch: equiv.Tokens(batch, length, 32768),
	}
}

// mixture has experts that are most of its weights.
func mixture(blocks, experts, width, hidden, batch, length int) equiv.Model {
	capacity := 2 * length / experts
	return equiv.Model{
		Name: "mixture of experts",
		Build: func(scope *model.Scope, x *Node) *Node {
			g := x.Graph()
			x = layers.Embedding(scope.In("embedding"), x, dtypes.Float32, 8192, width)
			for i := range blocks {
				s := scope.In("block_%d", i)
				variable := func(name string, dims ...int) *Node {
					return s.In("%s", name).VariableWithShape("w", shapes.Make(dtypes.Float32, dims...)).NodeValue(g)
				}
				x = Add(x, layers.Dense(s.In("mix"), activation.Gelu(layers.Dense(s.In("dense"), x, true, width)), true, width))
				dispatch, combine := equiv.Route(x, variable("gate", width, experts), capacity)
				y := Einsum("gsec,gsd->egcd", StopGradient(dispatch), x)
				y = Einsum("egcf,efd->egcd", activation.Relu(Einsum("egcd,edf->egcf", y, variable("up", experts, width, hidden))), variable("down", experts, hidden, width))
				x = Add(x, Einsum("gsec,egcd->gsd", combine, y))
			}
			return layers.Dense(scope.In("out"), x, true, 8192)
		},
		Loss:  loss.SparseCategoricalCrossEntropyLogits,
		Batch: equiv.Tokens(batch, length, 8192),
	}
}

// On a host with 8 GPUs, EPL finds what experts would write.
func TestEPLFindsThePlansOfExperts(t *testing.T) {
	for _, c := range []struct {
		m    equiv.Model
		part string         // that is split; "": all
		dims map[string]int // of variables, along which they are sharded
		says string         // what the plan is called
	}{
		{wideClassifier(256, 1_000_000), "head/dense/weights", map[string]int{"/head/dense/weights": 1},
			"a split head: head/dense/weights is split over"},
		{wideTransformer(4, 8192, 2, 1024), "", map[string]int{ // Megatron's: first by columns, then by rows
			"/layer_0/attn/MultiHeadAttention/query/dense/weights": 1, "/layer_0/attn/MultiHeadAttention/output/dense/weights": 0},
			"as in Megatron-LM"},
		{mixture(4, 128, 1024, 4096, 64, 256), "float32[128,1024,4096]", map[string]int{"/block_0/up/w": 0, "/block_3/down/w": 0},
			"expert parallelism: the experts ("},
	} {
		pl := described(t, c.m, "1x8xV100-32")
		if w := pl.Ways[0]; w.Split < 2 || (w.Part == "") != (c.part == "") || !strings.Contains(w.Part, c.part) {
			t.Errorf("%s: EPL chose %s", c.m.Name, &w)
		}
		if said := strings.Join(pl.Notes, "\n"); !strings.Contains(said, c.says) {
			t.Errorf("%s: the plan does not say %q:\n%s", c.m.Name, c.says, said)
		}
		got := map[string]int{}
		for _, v := range pl.Choices.Shards.Variables {
			got[v.Variable] = v.Dim
		}
		for name, dim := range c.dims {
			if d, ok := got[name]; !ok || d != dim {
				t.Errorf("%s: %s is sharded along dim %d (%t), not %d; sharded are %v", c.m.Name, name, d, ok, dim, got)
			}
		}
	}
}

// described is what EPL chooses for a model on a cluster that need not exist.
func described(t testing.TB, m equiv.Model, spec string, changes ...func(*cost.Cluster)) *plan.Plan {
	t.Helper()
	d, err := cost.Describe(spec)
	if err != nil {
		t.Fatal(err)
	}
	hardware, err := d.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(hardware)
	}
	var devices []int
	d.Each(func(w cost.Workers) { devices = append(devices, w.Devices) })
	c, err := cluster.New(cluster.Spec{Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.New(map[string]any{"auto.auto_parallel": true, "cluster.device_memory": hardware.Memory()})
	if err != nil {
		t.Fatal(err)
	}
	set, err := passes.Parse("", nil)
	if err != nil {
		t.Fatal(err)
	}
	pl, _, err := plan.Decide(recorded(t, m), cfg, plan.Target{Cluster: c, Passes: set, AsWritten: true, Hardware: hardware, Sensitivity: true})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return pl
}
