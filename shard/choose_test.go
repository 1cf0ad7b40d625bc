// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/shard"
)

// search finds how a program is sharded best.
func search(t *testing.T, p *ir.Program) (*shard.Chosen, shard.Choice) {
	t.Helper()
	c, err := shard.Search(p)
	if err != nil {
		t.Fatal(err)
	}
	choice, err := c.In(p)
	if err != nil {
		t.Fatal(err)
	}
	return c, choice
}

// chosen shards a model on k devices as is found best.
func chosen(t *testing.T, whole *ir.Program, k int) (*ir.Program, *shard.Chosen, *shard.Report) {
	t.Helper()
	p := split(t, whole, k)
	before := p.String()
	c, choice := search(t, p)
	if again, _ := search(t, p); p.String() != before || !reflect.DeepEqual(again, c) {
		t.Fatal("the program was changed, or the second choice is another one")
	}
	r, err := expanded(p, choice)
	if err != nil {
		t.Fatal(err)
	}
	return p, c, r
}

// layersOf is a transformer with 8 heads.
func layersOf(n int) equiv.Model {
	return equiv.Model{Name: fmt.Sprint(n, " layers"), Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: equiv.Tokens(3, 5, 41),
		Build: func(scope *model.Scope, x *Node) *Node {
			epl.With(x, epl.Split(2, "all"), func() {
				x = transformer.New(scope).WithVocabSize(41).WithEmbedDim(26).WithFFNDim(52).WithNumLayers(n).WithNumHeads(8).WithHeadDim(3).
					WithMaxPosEmbed(8).WithCausalMask(true).Logits(x, transformer.CallOptions{})
			})
			return x
		}}
}

// Columns, then rows: one exchange in forward and one in backward, for attention and for the MLP of each layer.
func TestALayerOfATransformerNeedsTwoReductionsInForwardAndInBackward(t *testing.T) {
	two, three := recorded(t, layersOf(2)), recorded(t, layersOf(3))
	for _, k := range []int{2, 3, 4, 8} {
		p, c, _ := chosen(t, two, k)
		q, _, r := chosen(t, three, k)
		more := exchanges(q, 0)
		for what, n := range exchanges(p, 0) {
			if more[what] -= n; more[what] == 0 {
				delete(more, what)
			}
		}
		if want := map[string]int{"forward all-reduce": 2, "backward all-reduce": 2}; !maps.Equal(more, want) || len(r.Weights) > 0 || len(r.Gathered) > 0 {
			t.Errorf("%d devices: a layer more exchanges %v; %q", k, more, append(c.Lines(), r.Lines()...))
		}
	}
}

func TestLayersAreShardedAlikeAndVectorsAreWhole(t *testing.T) {
	p, _, _ := chosen(t, recordedWith(t, layersOf(3), optimizer.Adam().Done()), 4)
	for path, want := range map[string]shard.Placement{
		"query/dense/weights": by(1, 3), "value/dense/biases": by(0, 3), "attn/MultiHeadAttention/output/dense/weights": by(0, 3),
		"ff1/dense/weights": by(1, 1), "ff1/dense/biases": by(0, 1), "ff2/dense/weights": by(0, 1),
		"ff2/dense/biases": {}, "normalization/gain": {}, "token_embed/embeddings": by(0, 1)} {
		n := 0
		for _, x := range p.Variables {
			if x.Trainable && strings.HasSuffix(x.Path, path) {
				n++
				if got := x.Param.On(ir.Model); got != want {
					t.Errorf("%s is %s, not %s", x.Path, got, want)
				}
			}
		}
		if n == 0 {
			t.Errorf("no variable is called %s", path)
		}
	}
	var whole, most int64
	for _, x := range p.Variables {
		whole += x.Param.Shape.ByteSize()
		most += x.Param.Bytes()
	}
	if float64(most) > 1.1*float64(whole)/4+float64(whole)/20 {
		t.Errorf("a device has %d bytes of %d", most, whole)
	}
}

func TestExpertsAreDealtToDevices(t *testing.T) {
	want := map[string]int{"forward all-to-all": 2, "backward all-to-all": 2}
	for _, n := range []int{8, 9} {
		for _, outside := range []bool{false, true} {
			dim := 12
			if outside {
				dim = 64
			}
			whole := recorded(t, equiv.Model{Build: experts(n, 3, dim, 2*dim, 10, outside), Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: samples(9, 10, 7, dim)})
			for _, k := range []int{2, 3, 4, 5, 8} {
				p, c, r := chosen(t, whole, k)
				if got := exchanges(p, 0); !maps.Equal(got, want) || len(r.Weights) > 0 {
					t.Errorf("%d experts on %d devices: %v; %q", n, k, got, append(c.Lines(), r.Lines()...))
				}
			}
		}
	}
}

// What devices exchange for a classifier are numbers for each sample, and its features.
func TestAClassifierIsShardedByClasses(t *testing.T) {
	bytes := map[int]int64{}
	for _, classes := range []int{1000, 4001} {
		whole := recorded(t, equiv.Model{Build: trunkAndHead(classes), Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: pixels(9, classes)})
		for _, k := range []int{2, 4, 8} {
			p, c, r := chosen(t, whole, k)
			if got, want := exchanges(p, 9*4), (map[string]int{"forward all-gather": 1, "backward reduce-scatter": 1}); !maps.Equal(got, want) {
				t.Errorf("%d classes on %d devices: %v; %q", classes, k, got, append(c.Lines(), r.Lines()...))
			}
			var n int64
			for _, e := range r.Exchanges {
				n += e.Bytes
			}
			if bytes[k] != 0 && bytes[k] != n {
				t.Errorf("%d bytes are exchanged for 1000 classes, %d for %d", bytes[k], n, classes)
			}
			bytes[k] = n
		}
	}
}

// An MLP in a residual network, without and with a gate.
func gated(gate bool) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Split(2, "all"), func() {
			for i := range 2 {
				s := scope.In("block_%d", i)
				h := norm.LayerNorm(s.In("norm"), x, -1).Done()
				up := activation.Gelu(layers.Dense(s.In("up"), h, false, 45))
				if gate {
					up = Mul(up, layers.Dense(s.In("gate"), h, false, 45))
				}
				x = Add(x, layers.Dense(s.In("down"), up, false, 21))
			}
		})
		return ReduceAndKeep(x, ReduceMean, -1)
	}
}

func TestAGateIsShardedAsWhatItMultiplies(t *testing.T) {
	for _, gate := range []bool{false, true} {
		whole := recorded(t, equiv.Model{Build: gated(gate), Loss: loss.MeanSquaredError, Batch: equiv.Regression(7, 21)})
		for _, k := range []int{2, 4, 8} {
			p, c, r := chosen(t, whole, k)
			if got, want := exchanges(p, 0), (map[string]int{"forward all-reduce": 2, "backward all-reduce": 2}); !maps.Equal(got, want) {
				t.Errorf("%d devices: %v; %q", k, got, append(c.Lines(), r.Lines()...))
			}
		}
	}
}

func TestPinsAreKept(t *testing.T) {
	whole := recorded(t, equiv.Model{Build: columnsAndRows(13), Loss: loss.MeanSquaredError, Batch: equiv.Regression(7, 10)})
	whole.TaskGraphs[0].Pins = []ir.Pin{{Variable: "first/dense/weights", Dim: 0}, {Variable: "second/dense/weights", Dim: -1}}
	p, c, _ := chosen(t, whole, 4)
	pinned := 0
	for _, x := range p.Variables {
		for path, want := range map[string]shard.Placement{"/first/dense/weights": by(0, 1), "/second/dense/weights": by(1, 1)} {
			if got := x.Param.On(ir.Model); x.Path == path && got != want {
				t.Errorf("%s is %s, not %s", x.Path, got, want)
			}
		}
	}
	for _, d := range c.Groups {
		if d.Pinned {
			pinned++
		}
	}
	if pinned != 2 {
		t.Errorf("%d groups are pinned", pinned)
	}
	for message, pins := range map[string][]ir.Pin{
		`dim 1 of variable "/fourth/dense/weights", float32[13,1], has fewer rows than there are devices, 4: pin another dim, or use fewer devices`: {
			{Variable: "fourth/dense/weights", Dim: 1}},
		`Shard("weights", 1) is for variable "/second/dense/weights", which another Shard pins to dim 0: leave one of them out`: {
			{Variable: "second/dense/weights", Dim: 0}, {Variable: "weights", Dim: 1}},
		`variable "/second/dense/weights", float32[13,10], has no such dim: pin one from 0 to 1`: {{Variable: "second/dense/weights", Dim: 2}},
	} {
		whole.TaskGraphs[0].Pins = pins
		if _, err := shard.Search(split(t, whole, 4)); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%v: %v", pins, err)
		}
	}
	whole.TaskGraphs[0].Pins = []ir.Pin{{Variable: "second/dense/weights", Dim: 0}, {Variable: "/second/dense/weights", Dim: -2}} // the same, twice
	chosen(t, whole, 4)
}

// All workers find the same.
func TestTheSameProgramIsAlwaysShardedTheSameWay(t *testing.T) {
	for _, m := range []equiv.Model{layersOf(1), {Build: experts(8, 3, 12, 24, 10, false), Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: samples(9, 10, 7, 12)}} {
		whole := recorded(t, m)
		var first []string
		for range 20 {
			p := split(t, whole, 4)
			c, _ := search(t, p)
			lines := c.Lines()
			for _, row := range shard.Listing(p, c, &shard.Report{}) {
				lines = append(lines, strings.Join(row, " "))
			}
			if first == nil {
				first = lines
			}
			if !slices.Equal(lines, first) {
				t.Fatalf("%q is not %q", lines, first)
			}
		}
	}
}

// Where there are few variables, all choices can be compared.
func TestNoChoiceIsMuchBetterThanTheOneFound(t *testing.T) {
	for _, m := range []equiv.Model{
		{Name: "mlp", Build: columnsAndRows(13), Loss: loss.MeanSquaredError, Batch: equiv.Regression(7, 10)},
		{Name: "large mlp", Build: columnsAndRows(700), Loss: loss.MeanSquaredError, Batch: equiv.Regression(200, 300)},
		{Name: "classifier", Build: classifier(50), Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: samples(7, 50, 16)},
		{Name: "trunk and head", Build: trunkAndHead(301), Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: pixels(9, 301)},
		{Name: "experts", Build: experts(8, 3, 12, 24, 10, false), Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: samples(9, 10, 7, 12)},
		{Name: "embedding", Build: splitEmbedding, Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: equiv.Tokens(7, 6, 32)},
		{Name: "layer norm", Build: layerNorm, Loss: loss.MeanSquaredError, Batch: equiv.Regression(7, 10)},
	} {
		whole := recorded(t, m)
		for _, k := range []int{2, 4} {
			found, best := shard.Prices(split(t, whole, k))
			if found > 1.05*best {
				t.Errorf("%s on %d devices costs %.1f µs, the best choice %.1f µs", m.Name, k, found*1e6, best*1e6)
			}
			t.Logf("%s on %d devices: %.1f µs, best %.1f µs", m.Name, k, found*1e6, best*1e6)
		}
	}
}

// A row per group of variables has the way that was chosen and why, and rows below it what else could be, with time and memory.
func TestAChoiceIsExplained(t *testing.T) {
	p, c, r := chosen(t, recorded(t, layersOf(3)), 4)
	if text := strings.Join(c.Lines(), "\n"); !strings.Contains(text, `from the plan "columns, then rows": forward and backward take`) {
		t.Error(text)
	}
	rows := shard.Listing(p, c, r)
	for variable, want := range map[string][2]string{
		"/layer_0/ff1/dense/weights and 2 like it": {"sharded(1): 13 of 52 rows", "each device makes a part of the output of FusedDense ("},
		"/layer_0/ff2/dense/weights and 2 like it": {"sharded(0): 13 of 52 rows", "sums over it: each device adds up what it has"},
		"/token_embed/embeddings":                  {"sharded(0): up to 11 of 41 rows", "Gather ("},
	} {
		at := slices.IndexFunc(rows, func(row []string) bool { return strings.HasPrefix(row[0], variable+" float32[") })
		if at < 0 {
			t.Errorf("there is no row for %s: %q", variable, rows)
			continue
		}
		if row := rows[at]; row[1] != want[0] || !strings.Contains(row[4], want[1]) || row[2] == "" || row[3] == "" {
			t.Errorf("%s: %q, want %q", variable, row, want)
		}
		others := 0
		for _, row := range rows[at+1:] {
			if row[0] != "" {
				break
			}
			if others++; !strings.HasPrefix(row[1], "or ") || row[2] == "" || row[3] == "" {
				t.Errorf("%s: an alternative is %q", variable, row)
			}
		}
		if others == 0 {
			t.Errorf("%s has no alternative: %q", variable, rows)
		}
	}
	told := map[string]bool{}
	for _, row := range rows {
		if len(row) != len(shard.Head) || row[0] != "" && told[row[0]] {
			t.Errorf("a row is no row, or there twice: %q", row)
		}
		told[row[0]] = true
	}
}

// Padding counts: of two dims that are otherwise alike the one is sharded that divides.
func TestADimThatDividesIsPreferred(t *testing.T) {
	for _, c := range []struct{ rows, columns, dim int }{{33, 32, 1}, {32, 33, 0}} {
		whole := recorded(t, equiv.Model{Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: samples(4, 3, 3), Build: func(scope *model.Scope, x *Node) *Node {
			epl.With(x, epl.Split(2, "all"), func() {
				w := scope.VariableWithShape("w", f32(c.rows, c.columns)).NodeValue(x.Graph())
				x = Mul(x, ReduceAllSum(Tanh(w)))
			})
			return x
		}})
		_, chosen, _ := chosen(t, whole, 4)
		if len(chosen.Variables) != 1 || chosen.Variables[0].Dim != c.dim {
			t.Errorf("of %d × %d: %v", c.rows, c.columns, chosen.Variables)
		}
	}
}
