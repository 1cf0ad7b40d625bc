// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
)

// transformerOf is GoMLX's language model with dropout, in one TaskGraph.
func transformerOf(depth int, s epl.Strategy) equiv.Model {
	build := func(scope *model.Scope, x *Node) *Node {
		epl.With(x, s, func() {
			x = transformer.New(scope).WithVocabSize(32).WithEmbedDim(16).WithNumLayers(depth).WithNumHeads(2).WithHeadDim(8).
				WithMaxPosEmbed(16).WithDropout(0.1).WithCausalMask(true).Logits(x, transformer.CallOptions{})
		})
		return x
	}
	return equiv.Model{Name: "transformer", Build: build, Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: equiv.Tokens(4, 16, 32)}
}

// recordedStep is the training step of a model as GoMLX built it.
func recordedStep(t testing.TB, m equiv.Model) *ir.Program {
	t.Helper()
	backend, r := equiv.NewRecorder(nil)
	defer backend.Finalize()
	if _, err := equiv.Train(backend, m, epl.Optimizer(optimizer.StochasticGradientDescent()), 1); err != nil {
		t.Fatalf("%+v", err)
	}
	return r.Programs[slices.IndexFunc(r.Programs, (*ir.Program).IsTraining)]
}

// passed is a program after all passes.
func passed(t testing.TB, p *ir.Program, o passes.Options) *ir.Program {
	t.Helper()
	on, err := passes.Parse("all", nil)
	if err != nil {
		t.Fatal(err)
	}
	p = p.Clone()
	o.Local, o.Before = &ir.Local{Replicas: 1, MicroBatches: 1}, plan.Choose
	if _, err := passes.Run(p, on, o, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

// regionsOf says what the regions of a program have.
func regionsOf(p *ir.Program) string {
	type region struct {
		phase       ir.Phase
		ops, copies int
		flops       int64
		keeps       []string
	}
	var all []region
	for _, op := range p.Main.Ops {
		if op.IsLeaf() || op.Phase == ir.Apply {
			continue
		}
		for len(all) <= op.Region {
			all = append(all, region{})
		}
		r := &all[op.Region]
		r.phase = op.Phase
		r.ops++
		r.flops += cost.Of(op).Flops
		if op.Origin == ir.Rematerialised {
			r.copies++
		}
		if op.Keep {
			var shapes []string
			for _, v := range op.Outputs {
				shapes = append(shapes, ir.ShapeText(v.Shape))
			}
			r.keeps = append(r.keeps, fmt.Sprintf("%s -> %s", op.Type(), strings.Join(shapes, ", ")))
		}
	}
	var s strings.Builder
	for i, r := range all {
		fmt.Fprintf(&s, "region %d, %s: %d ops, %d of them again, %d kflop\n", i, r.phase, r.ops, r.copies, r.flops/1000)
		for _, k := range r.keeps {
			fmt.Fprintf(&s, "  keeps %s\n", k)
		}
	}
	return s.String()
}

func TestATransformerHasARegionForEveryLayer(t *testing.T) {
	const file = "testdata/transformer-regions.txt"
	got := regionsOf(passed(t, recordedStep(t, transformerOf(4, epl.Replicate(1, "all"))), passes.Options{Checkpoint: "auto"}))
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("run with -update if this is right:\n%s", got)
	}
}

// What backward does again is what its own region of forward did, and no more.
func TestBackwardRepeatsItsOwnRegionOnly(t *testing.T) {
	for name, c := range map[string]struct {
		strategy epl.Strategy
		o        passes.Options
	}{
		"one device":    {epl.Replicate(1, "all"), passes.Options{Checkpoint: "auto"}},
		"split(2)":      {epl.Split(2, "all"), passes.Options{Checkpoint: "auto", Places: [][]int{{0, 1}}}},
		"replicated(2)": {epl.Replicate(2, "all"), passes.Options{Checkpoint: "auto", Places: [][]int{{0, 1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			recorded := recordedStep(t, transformerOf(4, c.strategy))
			plain := passed(t, recorded, passes.Options{Regions: true, Places: c.o.Places})
			p := passed(t, recorded, c.o)
			checkRepeats(t, p)
			forward, again, exchanges := 0, int64(0), 0
			var all int64
			for _, op := range p.Main.Ops {
				if op.IsExchange() {
					exchanges++
				}
				switch {
				case op.Phase == ir.Forward && !op.IsLeaf():
					forward++
					all += cost.Of(op).Flops
				case op.Origin == ir.Rematerialised:
					again += cost.Of(op).Flops
				}
			}
			if share := float64(again) / float64(all); share < 0.2 || share > 0.75 {
				t.Errorf("backward does %.0f%% of forward again", 100*share)
			}
			before := 0
			for _, op := range plain.Main.Ops {
				if op.IsExchange() {
					before++
				}
			}
			if before != exchanges || len(c.o.Places) > 0 && before == 0 {
				t.Errorf("devices exchange %d values instead of %d", exchanges, before)
			}
			if a, b := cost.Activations(plain.Main.Ops), cost.Activations(p.Main.Ops); b > a/2 {
				t.Errorf("backward reads %d bytes that forward kept, without recompute %d", b, a)
			}
		})
	}
}

// checkRepeats checks each op that is computed again, and that no op runs before what it reads.
func checkRepeats(t *testing.T, p *ir.Program) {
	t.Helper()
	regions := 0
	for _, op := range p.Main.Ops {
		if op.Phase == ir.Forward && !op.IsLeaf() {
			regions = max(regions, op.Region+1)
		}
	}
	copies := 0
	for i, op := range p.Main.Ops {
		if op.IsLeaf() || op.Phase == ir.Apply {
			continue
		}
		op.Uses(func(v *ir.Value) {
			if !v.Op.IsLeaf() && v.Op.Varying && v.Op.Region > op.Region {
				t.Errorf("%s of region %d reads %s of region %d", op, op.Region, v.Op, v.Op.Region)
			}
		})
		if op.Origin != ir.Rematerialised {
			continue
		}
		copies++
		if op.Phase != ir.Backward || op.Region < regions {
			t.Errorf("%s is computed again in %s, region %d", op, op.Phase, op.Region)
		}
		if op.IsExchange() {
			t.Errorf("%s is repeated", op)
		}
		if cost.Light(op) {
			continue // a mask, say, is computed wherever it is needed
		}
		original := slices.ContainsFunc(p.Main.Ops[:i], func(o *ir.Op) bool {
			return o.Phase == ir.Forward && o.Region == 2*regions-1-op.Region && o.Region < regions-1 && o.Place == op.Place && reflect.DeepEqual(o.Attrs, op.Attrs)
		})
		if !original {
			t.Errorf("%s, again in region %d, is not of region %d", op, op.Region, 2*regions-1-op.Region)
		}
	}
	if copies == 0 {
		t.Error("nothing is computed again")
	}
}

// forwardRegions are the regions of forward ops, in order, of a program that is divided though nothing is recomputed.
func forwardRegions(t *testing.T, p *ir.Program) (regions []int) {
	t.Helper()
	for _, op := range p.Main.Ops {
		if op.Phase == ir.Forward && !op.IsLeaf() {
			regions = append(regions, op.Region)
		}
		if op.Keep {
			t.Errorf("%s is kept, though nothing is recomputed", op)
		}
	}
	return regions
}

// A region for every dense layer would keep half of what backward reads: four small blocks make two regions.
func TestSmallBlocksShareRegions(t *testing.T) {
	before, _ := golden(t, "testdata/regions.txt")
	p := parse(t, before)
	if _, err := passes.Run(p, passes.Set{"regions": true}, passes.Options{Regions: true, Before: plan.Choose}, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := forwardRegions(t, p), []int{0, 0, 0, 0, 1, 1, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("forward has the regions %v, not %v", got, want)
	}
}

// Nothing repeats if layers differ in width: there are as many regions as the square root of the layers.
func TestANetworkThatRepeatsNothingIsDividedIntoTheSquareRootOfItsLayers(t *testing.T) {
	build := func(scope *model.Scope, x *Node) *Node {
		for i := range 9 {
			x = Tanh(layers.Dense(scope.In("dense_%d", i), x, true, 30+7*i%11))
		}
		return ReduceAndKeep(x, ReduceMean, -1)
	}
	p := recordedStep(t, equiv.Model{Name: "dense", Build: build, Loss: loss.MeanSquaredError, Batch: equiv.Regression(16, 8)})
	got := forwardRegions(t, passed(t, p, passes.Options{Regions: true}))
	if n := slices.Max(got) + 1; n != 3 {
		t.Errorf("it has %d regions, not 3: %v", n, got)
	}
}

// Where layers are many, regions hand on so little that there is room for what takes long to compute again.
func TestOfManyLayersSomeValuesAreKeptThatTakeLongToComputeAgain(t *testing.T) {
	recorded := recordedStep(t, transformerOf(16, epl.Replicate(1, "all")))
	plain, p := passed(t, recorded, passes.Options{Regions: true}), passed(t, recorded, passes.Options{Checkpoint: "auto"})
	checkRepeats(t, p)
	kept := map[string]int{}
	for _, op := range p.Main.Ops {
		if op.Keep {
			kept[string(op.Type())]++
		}
	}
	if kept["Add"] < 15 || len(kept) < 3 { // what goes from layer to layer, states of random numbers, and others
		t.Errorf("it keeps %v", kept)
	}
	if a, b := cost.Activations(plain.Main.Ops), cost.Activations(p.Main.Ops); b > a/4 {
		t.Errorf("backward reads %d bytes that forward kept, without recompute %d", b, a)
	}
}

// copies are the ops that backward computes again, without what is done at once.
func copies(p *ir.Program) (ops []*ir.Op) {
	for _, op := range p.Main.Ops {
		if op.Origin == ir.Rematerialised && !cost.Light(op) {
			ops = append(ops, op)
		}
	}
	return ops
}

func TestOnlyTaskGraphsUpToTheLastOneGivenAreRecomputed(t *testing.T) {
	m := equiv.Model{Name: "mlp", Build: equiv.MLP(6, 16, false), Loss: loss.MeanSquaredError, Batch: equiv.Regression(16, 16)}
	recorded := recordedStep(t, m)
	before := 0
	for n := 1; n <= 3; n++ {
		ops := copies(passed(t, recorded, passes.Options{Checkpoint: "auto", CheckpointEnd: n}))
		for _, op := range ops {
			if op.TaskGraph == nil || op.TaskGraph.ID >= n {
				t.Errorf("%s of %s is recomputed with the first %d", op, op.TaskGraph.Title(), n)
			}
		}
		if len(ops) <= before {
			t.Errorf("%d ops of the first %d TaskGraphs are recomputed, %d of one less", len(ops), n, before)
		}
		before = len(ops)
	}
}

// The state of random numbers is kept where a region ends, so that those of earlier ones are not made again; the numbers
// themselves are not kept.
func TestRandomNumbersAreMadeAgainOnceEach(t *testing.T) {
	build := func(scope *model.Scope, x *Node) *Node {
		for i := range 4 {
			x = layers.DropoutStatic(scope, Tanh(layers.Dense(scope.In("dense_%d", i), x, true, 16)), 0.2)
			if i < 3 {
				epl.AddToCollection(epl.Checkpoints, x)
			}
		}
		return layers.Dense(scope.In("out"), x, true, 1)
	}
	m := equiv.Model{Name: "dropout", Build: build, Loss: loss.MeanSquaredError, Batch: equiv.Regression(16, 8)}
	p := passed(t, recordedStep(t, m), passes.Options{Checkpoint: "collection"})
	forward := map[*ir.Value]bool{} // states
	again := map[*ir.Value]int{}
	for _, op := range p.Main.Ops {
		if _, ok := op.Attrs.(*ir.RNGBitGenerator); !ok {
			continue
		}
		if op.Phase == ir.Forward {
			forward[op.Inputs[0]] = true
		} else {
			again[op.Inputs[0]]++
		}
		op.Uses(func(v *ir.Value) {
			if op.Phase == ir.Backward && v.Op.Phase == ir.Backward && v.Op.Origin != ir.Rematerialised {
				t.Errorf("%s reads the state of %s", op, v.Op)
			}
		})
	}
	if len(forward) != 4 || len(again) != 3 {
		t.Errorf("%d random ops, %d of them again; want 4 and 3", len(forward), len(again))
	}
	for v, n := range again {
		if n != 1 {
			t.Errorf("the numbers from %s are made again %d times", v, n)
		}
	}
}

// A value that a region of backward reads which is not the mirror of its own would be computed twice: it is kept.
func TestWhatAnotherRegionReadsIsKept(t *testing.T) {
	p := recordedStep(t, transformerOf(4, epl.Replicate(1, "all")))
	o := passes.Options{Checkpoint: "auto", Local: &ir.Local{Replicas: 1, MicroBatches: 1}, Before: plan.Choose}
	on, err := passes.Parse("all", nil)
	if err != nil {
		t.Fatal(err)
	}
	var v *ir.Value // read by backward in region 6, and from now on by an op of region 7
	var reader *ir.Op
	_, err = passes.Run(p, on, o, func(pass passes.Pass, p *ir.Program) {
		if pass.Name != "shard" {
			return
		}
		for _, op := range p.Main.Ops {
			if _, ok := op.Attrs.(*ir.DotGeneral); !ok || op.Phase != ir.Backward || op.Region != 6 || v != nil {
				continue
			}
			for _, in := range op.Inputs {
				if in.Op.Phase == ir.Forward && in.Op.Region == 1 && !in.Op.Keep && in.Op.Varying {
					v = in
				}
			}
		}
		last := p.Main.Ops[slices.IndexFunc(p.Main.Ops, func(op *ir.Op) bool { return op.Phase == ir.Backward && op.Region == 7 && !op.IsLeaf() })]
		reader = p.NewOp(&ir.Abs{}, []*ir.Value{v}, v.Shape)
		p.Main.InsertBefore(last, reader)
		reader.Varying = true
	})
	if err != nil {
		t.Fatal(err)
	}
	if reader.Inputs[0] != v {
		t.Errorf("%s reads %s, not the %s that forward computed", reader, reader.Inputs[0].Op, v.Op)
	}
	for _, op := range copies(p) {
		if reflect.DeepEqual(op.Attrs, v.Op.Attrs) && slices.Equal(op.Inputs, v.Op.Inputs) {
			t.Errorf("%s is kept and computed again by %s", v.Op, op)
		}
	}
}
