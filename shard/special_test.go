// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/metric"

	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/shard"
)

const numSamples, numClasses = 5, 203

// byClass records what is computed of logits and labels, on k devices of which each has some classes: the weights that make
// the logits are sharded.
func byClass(t *testing.T, k int, labels shapes.Shape, build func(logits, labels *Node) []*Node) (*ir.Program, shard.Choice) {
	t.Helper()
	backend, r := equiv.NewRecorder(nil)
	t.Cleanup(backend.Finalize)
	exec, err := model.NewExec(backend, model.NewStore(), func(scope *model.Scope, x, labels *Node) []*Node {
		w := scope.VariableWithShape("w", f32(2, numClasses)).NodeValue(x.Graph())
		return build(MatMul(x, w), labels)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.Exec(tensors.FromShape(f32(numSamples, 2)), tensors.FromShape(labels)); err != nil {
		t.Fatalf("%+v", err)
	}
	for _, p := range r.Programs {
		if len(p.Inputs) == 2 {
			tg := &ir.TaskGraph{Name: "head", Kind: ir.Split, Devices: k}
			p.TaskGraphs, p.Stages = []*ir.TaskGraph{tg}, []ir.Stage{{TaskGraphs: []*ir.TaskGraph{tg}}}
			for j := range k {
				p.Stages[0].Places = append(p.Stages[0].Places, j)
			}
			for _, op := range p.Main.Ops {
				op.TaskGraph, op.Twin, op.Of = tg, nil, nil
			}
			for _, v := range p.Variables {
				v.TaskGraph = tg
			}
			if err := p.Verify(); err != nil {
				t.Fatal(err)
			}
			return p, shard.Choice{p.Variables[0].Param: {Kind: shard.Sharded, Dim: 1, Unit: 1}}
		}
	}
	t.Fatal("nothing was recorded")
	return nil, nil
}

// What is computed of logits that are sharded by classes neither gathers them nor makes a whole value of their size.
func TestNoDeviceHasTheLogitsOfAllClasses(t *testing.T) {
	sparse, dense := i32(numSamples, 1), f32(numSamples, numClasses)
	entropy := func(of func(labels, logits []*Node) *Node) func(logits, labels *Node) []*Node {
		return func(logits, labels *Node) []*Node {
			each := of([]*Node{labels}, []*Node{logits})
			gradient := Gradient(ReduceAllMean(each), logits)[0]
			return []*Node{each, ReduceSum(Mul(gradient, logits), -1), ReduceMax(gradient, -1)}
		}
	}
	for _, c := range []struct {
		name   string
		labels shapes.Shape
		build  func(logits, labels *Node) []*Node
	}{
		{"cross entropy of class numbers", sparse, entropy(loss.SparseCategoricalCrossEntropyLogits)},
		{"cross entropy of distributions", dense, entropy(loss.CategoricalCrossEntropyLogits)},
		{"softmax", dense, entropy(func(labels, logits []*Node) *Node { return ReduceSum(Mul(labels[0], Softmax(logits[0])), -1) })},
		{"logarithm of softmax", dense, entropy(func(labels, logits []*Node) *Node { return ReduceMin(LogSoftmax(logits[0]), -1) })},
		{"accuracy", sparse, func(logits, labels *Node) []*Node {
			return []*Node{metric.SparseCategoricalAccuracyGraph(nil, []*Node{labels}, []*Node{logits}), ArgMax(logits, -1), ArgMin(logits, -1)}
		}},
		{"accuracy among the first", sparse, func(logits, labels *Node) []*Node {
			values, best := TopK(logits, 7, -1)
			hits := ReduceLogicalOr(Equal(best, BroadcastToShape(labels, best.Shape())), -1)
			return []*Node{values, best, hits}
		}},
		{"the worst, of two kinds", sparse, func(logits, labels *Node) []*Node {
			values, worst := BottomK(logits, 12, -1)
			return []*Node{Slice(values, AxisRange(), AxisRange(0, 3)), worst}
		}},
		{"a mask of the first", sparse, func(logits, labels *Node) []*Node {
			return []*Node{ReduceSum(Where(TopKMask(logits, 4, -1), logits, ZerosLike(logits)), -1)}
		}},
		{"the logit of the class", sparse, func(logits, labels *Node) []*Node {
			at := Concatenate([]*Node{Iota(logits.Graph(), labels.Shape(), 0), labels}, -1)
			chosen := Gather(logits, at)
			rank := ReduceSum(ConvertDType(GreaterThan(logits, InsertAxes(chosen, -1)), dtypes.Int32), -1)
			return []*Node{chosen, rank, ReduceMax(Mul(Gradient(ReduceAllSum(Square(chosen)), logits)[0], logits), -1)}
		}},
	} {
		for _, k := range []int{2, 3, 4, 8} {
			for _, ties := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/ties %v", c.name, k, ties), func(t *testing.T) {
					p, choice := byClass(t, k, c.labels, c.build)
					rng := rand.New(rand.NewPCG(uint64(k), 5))
					given := draw(p, rng, numClasses)
					if ties {
						for _, x := range []tensor{given["arg0"], given[p.Variables[0].Path]} {
							for i := range x.flat.Len() {
								x.flat.Index(i).SetFloat(float64(rng.IntN(3)))
							}
						}
					}
					estimated := shard.Estimated(p, choice)
					want, got, r := partitioned(t, p, choice, given)
					for i := range want {
						same(t, fmt.Sprintf("output %d", i), want[i], got[i])
					}
					for how := ir.AllReduceOf; how <= ir.AllToAllOf; how++ {
						if done := r.Exchanges[how].Count + r.Once[how].Count; estimated[how] != done {
							t.Errorf("%d × %s estimated, there are %d", estimated[how], how, done)
						}
					}
					for _, op := range p.Main.Ops {
						if op.IsLeaf() {
							continue
						}
						for _, v := range op.Outputs {
							if slices.Contains(v.LocalShape(nil).Dimensions, numClasses) || op.IsExchange() && v.Shape.Size() > numSamples*k*12 {
								t.Errorf("%s makes a whole %s", op, ir.ShapeText(v.Shape))
							}
						}
					}
				})
			}
		}
	}
}

// Numbers of rows are integers, however many there are.
func TestRowsBeyondWhatAFloatCanCountAreFound(t *testing.T) {
	const k, rows, row = 3, 1<<24 + 100, 1<<24 + 77
	text := fmt.Sprintf(`program "p"
taskgraph 0 "all" replicate(3)
stage taskgraph 0 place 0 place 1 place 2
input %%0
main {
  %%0 = Parameter() {Name: "arg0", Shape: int8[%[1]d]} -> int8[%[1]d] : forward
  %%1 = Iota() {Shape: int32[%[1]d]} -> int32[%[1]d] : forward taskgraph 0
  %%2 = Constant() {Value: int32[](%[2]d)} -> int32[] : forward
  %%3 = Equal(%%1, %%2) -> bool[%[1]d] : forward taskgraph 0
  %%4 = Constant() {Value: int8[](5)} -> int8[] : forward
  %%5 = Where(%%3, %%4, %%0) -> int8[%[1]d] : forward taskgraph 0
  %%6 = ArgMinMax(%%5) {OutputDType: int32} -> int32[] : forward taskgraph 0
  %%7 = Constant() {Value: int32[1](%[2]d)} -> int32[1] : forward
  %%8 = Gather(%%5, %%7) {CollapsedSliceAxes: [0], StartIndexMap: [0], SliceSizes: [1]} -> int8[] : forward taskgraph 0
  return %%6, %%8
}
`, rows, row)
	p, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := expanded(p, nil); err != nil {
		t.Fatal(err)
	}
	values := evaluate(t, newBackend(t), p, map[string]tensor{"arg0": newTensor(of(dtypes.Int8, rows))})
	if got, there := values[p.Main.Outputs[0]].flat.Index(0).Int(), values[p.Main.Outputs[1]].flat.Index(0).Int(); got != row || there != 5 {
		t.Errorf("%d was found in row %d", there, got)
	}
}

// A comparator may order anything, and what is sorted may have more rows than are needed; those that are equal stay in order.
func TestTheFirstOfSortedRowsAreThoseOfTheWhole(t *testing.T) {
	for _, k := range []int{2, 3, 4, 8} {
		for _, take := range []int{1, 2, 5, 12} {
			p := byRows(t, k, 13, fmt.Sprintf(`
				%%1 = Tanh(%%0) -> float32[13,3] : forward taskgraph 0
				%%2 = Iota() {Shape: int32[13,3]} -> int32[13,3] : forward taskgraph 0
				%%3 = Sort(%%1, %%2) {IsStable: true} [closure 0 {
				%%4 = Parameter() {Name: "a", Shape: float32[]} -> float32[] : forward
				%%5 = Parameter() {Name: "b", Shape: float32[]} -> float32[] : forward
				%%6 = Parameter() {Name: "c", Shape: int32[]} -> int32[] : forward
				%%7 = Parameter() {Name: "d", Shape: int32[]} -> int32[] : forward
				%%8 = LessThan(%%4, %%5) -> bool[] : forward
				return %%8
				}] -> float32[13,3], int32[13,3] : forward taskgraph 0
				%%9 = Slice(%%3) {Starts: [0, 0], Limits: [1, 3], Strides: [1, 1]} -> float32[1,3] : forward taskgraph 0
				%%10 = Slice(%%3.1) {Starts: [0, 1], Limits: [%[1]d, 3], Strides: [1, 1]} -> int32[%[1]d,2] : forward taskgraph 0
				return %%9, %%10`, take))
			given := draw(p, rand.New(rand.NewPCG(uint64(k), uint64(take))), 4)
			for i, x := range given {
				for j := range x.flat.Len() {
					given[i].flat.Index(j).SetFloat(math.Round(2 * x.flat.Index(j).Float()))
				}
			}
			want, got, r := partitioned(t, p, nil, given)
			for i := range want {
				same(t, fmt.Sprintf("output %d of %d rows on %d devices", i, take, k), want[i], got[i])
			}
			if len(r.Gathered) > 0 {
				t.Errorf("%v\n%s", r.Lines(), p)
			}
		}
	}
}

// byRows reads a program on k devices: %0 is data of 3 columns.
func byRows(t *testing.T, k, rows int, body string) *ir.Program {
	t.Helper()
	text := fmt.Sprintf("program \"p\"\ntaskgraph 0 \"all\" replicate(%d)\nstage taskgraph 0", k)
	for j := range k {
		text += fmt.Sprintf(" place %d", j)
	}
	text += fmt.Sprintf("\ninput %%0\nmain {\n%%0 = Parameter() {Name: \"arg0\", Shape: float32[%[1]d,3]} -> float32[%[1]d,3] : forward%[2]s\n}\n", rows, body)
	p, err := ir.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

// What else uses sorted rows needs all of them: they are gathered.
func TestRowsThatAreSortedForOthersAreGathered(t *testing.T) {
	for _, c := range []struct{ name, body string }{
		{"returned", `return %3`},
		{"returned, too", "%9 = Slice(%3) {Starts: [0, 0], Limits: [2, 3], Strides: [1, 1]} -> float32[2,3] : forward taskgraph 0\nreturn %9, %3"},
		{"the last ones", "%9 = Slice(%3) {Starts: [10, 0], Limits: [13, 3], Strides: [1, 1]} -> float32[3,3] : forward taskgraph 0\nreturn %9"},
		{"every second one", "%9 = Slice(%3) {Starts: [0, 0], Limits: [5, 3], Strides: [2, 1]} -> float32[3,3] : forward taskgraph 0\nreturn %9"},
		{"also as they are", "%9 = Slice(%3) {Starts: [0, 0], Limits: [2, 3], Strides: [1, 1]} -> float32[2,3] : forward taskgraph 0\n" +
			"%10 = Tanh(%3) -> float32[13,3] : forward taskgraph 0\nreturn %9, %10"},
	} {
		p := byRows(t, 3, 13, `
			%2 = Tanh(%0) -> float32[13,3] : forward taskgraph 0
			%3 = Sort(%2) [closure 0 {
			%4 = Parameter() {Name: "a", Shape: float32[]} -> float32[] : forward
			%5 = Parameter() {Name: "b", Shape: float32[]} -> float32[] : forward
			%6 = LessThan(%4, %5) -> bool[] : forward
			return %6
			}] -> float32[13,3] : forward taskgraph 0
			`+c.body)
		r := compare(t, p, 3)
		if len(r.Gathered) != 1 || r.Gathered[0][0].Type() != ir.OpSort {
			t.Errorf("%s: %v", c.name, r.Lines())
		}
	}
}

// The rows of a small slice come from the devices that have them, and not from all.
func TestASmallSliceIsNotGathered(t *testing.T) {
	p := byRows(t, 4, 13, `
		%1 = Tanh(%0) -> float32[13,3] : forward taskgraph 0
		%2 = Slice(%1) {Starts: [0, 0], Limits: [1, 3], Strides: [1, 1]} -> float32[1,3] : forward taskgraph 0
		%3 = Exp(%2) -> float32[1,3] : forward taskgraph 0
		return %3`)
	r := compare(t, p, 1)
	if got := r.Exchanges[ir.AllReduceOf]; got.Count != 1 || got.Bytes != 12 || r.Exchanges[ir.AllGatherOf].Count != 0 {
		t.Errorf("%v\n%s", r.Lines(), p)
	}
}

// Attention is not sharded along queries whose position matters, nor where nobody knows what a dim means.
func TestAttentionIsShardedOnlyWhereThatIsSafe(t *testing.T) {
	var none shapes.Shape
	q, state := f32(6, 8, 4, 2), f32(6, 8, 4) // samples, heads, positions
	for _, c := range []struct {
		name    string
		options compute.ScaledDotProductAttentionConfig
		more    []shapes.Shape
		state   shapes.Shape
		want    []int // the dims of the query
	}{
		{"plain", compute.ScaledDotProductAttentionConfig{}, []shapes.Shape{none, none, none, none}, state, []int{0, 1, 2}},
		{"causal", compute.ScaledDotProductAttentionConfig{Causal: true}, []shapes.Shape{none, none, none, none}, state, []int{0, 1}},
		{"lengths", compute.ScaledDotProductAttentionConfig{}, []shapes.Shape{i32(6), i32(6), none, none}, state, []int{0, 1}},
		{"quantized", compute.ScaledDotProductAttentionConfig{QuantizedMatmuls: true}, []shapes.Shape{none, none, none, none}, state, []int{0, 1}},
		{"a mask of three dims", compute.ScaledDotProductAttentionConfig{}, []shapes.Shape{none, none, none, b(1, 4, 4)}, state, []int{2}},
		{"a state without heads", compute.ScaledDotProductAttentionConfig{}, []shapes.Shape{none, none, none, none}, f32(6, 4), []int{0}},
		{"an unknown state", compute.ScaledDotProductAttentionConfig{}, []shapes.Shape{none, none, none, none}, f32(100), nil},
	} {
		_, op, _ := single(t, operation{attrs: &ir.FusedScaledDotProductAttention{Options: &c.options}, inputs: append([]shapes.Shape{q, q, q}, c.more...),
			outputs: []shapes.Shape{q, c.state}}, nil, 1, 1)
		var got []int
		for _, f := range shard.RuleOf(op).Factors {
			got = append(got, f.In[0].Dim)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: dims %v, want %v", c.name, got, c.want)
		}
	}
}
