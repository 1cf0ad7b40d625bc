// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

const batch, length, vocabulary, width = 4, 16, 32, 32

func language(layers int, dropout float64) equiv.Model {
	return equiv.Model{
		Name: fmt.Sprintf("transformer-%d", layers),
		Build: func(scope *model.Scope, x *Node) *Node {
			return transformer.New(scope).WithVocabSize(vocabulary).WithEmbedDim(width).WithNumLayers(layers).WithNumHeads(2).
				WithHeadDim(width/2).WithMaxPosEmbed(length).WithDropout(dropout).WithCausalMask(true).Logits(x, transformer.CallOptions{})
		},
		Loss:  loss.SparseCategoricalCrossEntropyLogits,
		Batch: equiv.Tokens(batch, length, vocabulary),
	}
}

// checkpointed computes each of its layers again in backward.
func checkpointed(scope *model.Scope, x *Node) *Node {
	for i := range 4 {
		s := scope.In("layer_%d", i)
		x = x.Checkpoint()
		x = IdentityWithCustomGradient(x, func(x, v *Node) *Node { return Mul(v, OnePlus(Abs(x))) })
		x = activation.Gelu(norm.LayerNorm(s, layers.Dense(s, x, true, 16), -1).Done())
	}
	return layers.Dense(scope.In("out"), x.StopCheckpoint(), true, 1)
}

// perceptron has batch statistics, which are variables that forward updates, and a connection over all layers.
func perceptron(scope *model.Scope, x *Node) *Node {
	first := x
	for i := range 4 {
		s := scope.In("layer_%d", i)
		x = norm.BatchNorm(s, layers.Dense(s, x, true, 16), -1).UseBackendInference(false).Done()
		x = activation.Gelu(x)
		if i == 0 {
			first = x
		}
	}
	return layers.Dense(scope.In("out"), Add(x, first), true, 1)
}

// tied reads its table of embeddings at both ends.
func tied(scope *model.Scope, x *Node) *Node {
	table := scope.VariableWithShape("table", shapes.Make(dtypes.Float32, vocabulary, width)).NodeValue(x.Graph())
	x = Gather(table, InsertAxes(x, -1))
	for i := range 4 {
		x = Add(x, activation.Gelu(layers.Dense(scope.In("layer_%d", i), x, true, width)))
	}
	return Einsum("bsd,vd->bsv", x, table)
}

func models() []equiv.Model {
	return []equiv.Model{
		language(4, 0.1),
		{Name: "tied", Build: tied, Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: equiv.Tokens(batch, length, vocabulary)},
		{Name: "checkpointed", Build: checkpointed, Loss: loss.MeanSquaredError, Batch: equiv.Regression(16, 8)},
		{Name: "perceptron", Build: perceptron, Loss: loss.MeanSquaredError, Batch: equiv.Regression(16, 8)},
	}
}

// recorded is the training program of a model.
func recorded(t testing.TB, m equiv.Model) *ir.Program {
	t.Helper()
	enough := errors.New("it need not run")
	backend, recorder := equiv.NewRecorder(func(inner compute.Backend, p *ir.Program) (compute.Executable, error) {
		if p.IsTraining() {
			return nil, enough
		}
		return emit.Program(inner, p)
	})
	if _, err := equiv.Train(backend, m, epl.Optimizer(optimizer.Adam().Done()), 1); err == nil || !strings.Contains(err.Error(), enough.Error()) {
		t.Fatalf("%+v", err)
	}
	for _, p := range recorder.Programs {
		if p.IsTraining() {
			return p
		}
	}
	t.Fatal("no training program was recorded")
	return nil
}

func cut(t testing.TB, p *ir.Program, n int) *plan.Cut {
	t.Helper()
	c, err := plan.StagesAlike(p, n, cost.Default, cost.DefaultLink)
	if err == nil {
		err = c.Apply(p)
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return c
}

func TestValuesFlowForwardAndGradientsFlowBack(t *testing.T) {
	for _, m := range models() {
		for n := 1; n <= 4; n++ {
			p := recorded(t, m)
			cut(t, p, n)
			for _, op := range p.Main.Ops {
				if op.Phase == ir.Apply || op.IsLeaf() {
					continue
				}
				if op.TaskGraph == nil {
					t.Errorf("%s, %d stages: %s is in none", m.Name, n, op)
					continue
				}
				op.Uses(func(v *ir.Value) {
					if v.Op.IsLeaf() {
						return
					}
					from, to := v.Op.TaskGraph.ID, op.TaskGraph.ID
					if v.Op.Phase == ir.Forward && from > to || v.Op.Phase == ir.Backward && from < to {
						t.Errorf("%s, %d stages: %s (%s) of stage %d reads %s of stage %d", m.Name, n, op, op.Phase, to, v.Op, from)
					}
				})
			}
		}
	}
}

func TestVariablesLiveWhereTheyAreReadAndAreUpdatedThere(t *testing.T) {
	for _, m := range models() {
		p := recorded(t, m)
		cut(t, p, 3)
		first := map[*ir.Value]int{}
		for _, op := range p.Main.Ops {
			op.Uses(func(v *ir.Value) {
				if id, ok := first[v]; op.Phase == ir.Forward && (!ok || op.TaskGraph.ID < id) {
					first[v] = op.TaskGraph.ID
				}
			})
		}
		for _, v := range p.Variables {
			if id, ok := first[v.Param]; ok && (v.TaskGraph == nil || v.TaskGraph.ID != id) {
				t.Errorf("%s: %s is in %s, and first read in stage %d", m.Name, v.Path, v.TaskGraph.Title(), id)
			}
			if v.Param.Op.TaskGraph != v.TaskGraph {
				t.Errorf("%s: %s is in %s, its parameter in %s", m.Name, v.Path, v.TaskGraph.Title(), v.Param.Op.TaskGraph.Title())
			}
			if v.Trainable && v.Update.Op.TaskGraph != v.TaskGraph {
				t.Errorf("%s: %s is in %s, its update in %s", m.Name, v.Path, v.TaskGraph.Title(), v.Update.Op.TaskGraph.Title())
			}
			if strings.Contains(v.Path, "moment") && v.TaskGraph == nil {
				t.Errorf("%s: %s is not with its variable", m.Name, v.Path)
			}
		}
	}
}

func TestEqualLayersGetEqualNumbersOfOps(t *testing.T) {
	p := recorded(t, language(8, 0.1))
	c := cut(t, p, 4)
	for i, s := range c.Stages {
		if s.Blocks != 2 {
			t.Errorf("stage %d has %d layers", i, s.Blocks)
		}
	}
	if c.Stages[1].Ops != c.Stages[2].Ops || c.Stages[1].BackwardFlops != c.Stages[2].BackwardFlops {
		t.Errorf("stages of two equal layers differ: %+v, %+v", c.Stages[1], c.Stages[2])
	}
	if x := int64(batch * length * width * 4); c.Stages[1].SentBack != x || c.Stages[1].SentOn > x+x/2 {
		t.Errorf("%d bytes are sent on and %d back; the activation has %d", c.Stages[1].SentOn, c.Stages[1].SentBack, x)
	}
}

// A table that two stages read belongs to the first; the parts of its gradient are added up once a step, and not once a
// micro-batch.
func TestSharedVariablesDoNotCountAsTraffic(t *testing.T) {
	p := recorded(t, models()[1])
	c := cut(t, p, 2)
	if x := int64(batch * length * width * 4); c.Stages[1].SentBack%x != 0 {
		t.Errorf("%d bytes are sent back; the gradient of an activation has %d", c.Stages[1].SentBack, x)
	}
	for _, v := range p.Variables {
		if v.Path == "/table" && v.TaskGraph.ID != 0 {
			t.Errorf("the table is in %s", v.TaskGraph.Title())
		}
	}
}

// stagedCompiler cuts training programs before they run, as a whole, on one device.
func stagedCompiler(n int) equiv.Compiler {
	return func(inner compute.Backend, p *ir.Program) (compute.Executable, error) {
		if p.IsTraining() {
			c, err := plan.StagesAlike(p, n, cost.Default, cost.DefaultLink)
			if err == nil {
				err = c.Apply(p)
			}
			if err != nil {
				return nil, err
			}
		}
		return emit.Program(inner, p)
	}
}

func TestAProgramInStagesComputesTheSame(t *testing.T) {
	for _, m := range models() {
		plain, _ := equiv.NewRecorder(nil)
		want, err := equiv.Train(plain, m, epl.Optimizer(optimizer.StochasticGradientDescent()), 3)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		staged, _ := equiv.NewRecorder(stagedCompiler(3))
		got, err := equiv.Train(staged, m, epl.Optimizer(optimizer.StochasticGradientDescent()), 3)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		if err := equiv.SameBits(want, got); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

func TestTheSameProgramIsAlwaysCutTheSameWay(t *testing.T) {
	p := recorded(t, language(4, 0.1))
	q := p.Clone()
	cut(t, p, 3)
	for range 5 {
		again := q.Clone()
		cut(t, again, 3)
		if again.String() != p.String() {
			t.Fatal("two cuts of the same program differ")
		}
	}
}

var line = regexp.MustCompile(`stages_test\.go:[0-9]+`)

func TestTheTableReadsAsInTheGoldenFile(t *testing.T) {
	var got strings.Builder
	for _, n := range []int{2, 3, 4} {
		c := cut(t, recorded(t, language(4, 0)), n)
		w := tabwriter.NewWriter(&got, 0, 0, 2, ' ', 0)
		head, rows := c.Table()
		for _, cells := range append([][]string{head}, rows...) {
			fmt.Fprintln(w, line.ReplaceAllString(strings.Join(cells, "\t"), "stages_test.go:N"))
		}
		w.Flush()
		for _, note := range c.Notes {
			fmt.Fprintln(&got, line.ReplaceAllString(note, "stages_test.go:N"))
		}
		fmt.Fprintln(&got)
	}
	const file = "testdata/transformer.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the cut changed; run with -update if that is right. Got:\n%s", got.String())
	}
}
