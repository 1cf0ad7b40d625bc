// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
)

// This file checks what EPL takes for granted about GoMLX beyond its documented interfaces. If a test here fails after
// an upgrade, so will package record, in ways that are harder to understand.

func TestGoMLXIsPinnedToTheVersionsThatWereLookedAt(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"github.com/gomlx/compute v0.1.5\n", "github.com/gomlx/gomlx v0.28.2\n"} {
		if !strings.Contains(string(mod), want) {
			t.Errorf("go.mod does not require %s", want)
		}
	}
}

// record.ValueOf finds our value behind a node by graph.InternalBackendOutputs.
func TestEveryNodeOfAGraphLeadsToTheValueRecordedForIt(t *testing.T) {
	backend, _ := NewRecorder(nil)
	defer backend.Finalize()
	_, err := graph.CallOnceN(backend, func(x *graph.Node) []*graph.Node {
		g := x.Graph()
		state, bits := graph.RandomUniform(graph.RNGStateFromSeedForGraph(g, 1), x.Shape())
		sorted := graph.Sort(graph.Tanh(x), 0, true)
		for _, c := range []struct {
			node  *graph.Node
			op    ir.OpType
			index int
		}{
			{x, ir.OpParameter, 0}, {graph.Const(g, float32(1)), ir.OpConstant, 0}, {graph.Tanh(x), ir.OpTanh, 0},
			{state, ir.OpRNGBitGenerator, 0}, {sorted, ir.OpSort, 0}, {graph.StopGradient(x), ir.OpIdentity, 0},
		} {
			v := record.ValueOf(c.node)
			if v == nil {
				t.Errorf("%s has no value of ours", c.node)
				continue
			}
			if v.Op.Type() != c.op || v.Index != c.index || !v.Shape.Equal(c.node.Shape()) {
				t.Errorf("%s is recorded as output %d of %s, %s", c.node, v.Index, v.Op, ir.ShapeText(v.Shape))
			}
			if v.Builder() != record.Of(g) {
				t.Errorf("%s leads to another builder than its graph", c.node)
			}
		}
		for _, n := range g.Nodes() {
			if outs := graph.InternalBackendOutputs(n); len(outs) != n.NumOutputs() {
				t.Errorf("%s has %d values for %d outputs", n, len(outs), n.NumOutputs())
			}
		}
		return []*graph.Node{bits, sorted}
	}, []float32{3, 1, 2})
	if err != nil {
		t.Fatalf("%+v", err)
	}
}

// A second output is a node of its own, with one value.
func TestOutputsOfAnOpAreSplitIntoNodesWithTheirOwnValues(t *testing.T) {
	backend, _ := NewRecorder(nil)
	defer backend.Finalize()
	_, err := graph.CallOnceN(backend, func(x *graph.Node) []*graph.Node {
		one, two := graph.RNGStateSplit(graph.RNGStateFromSeedForGraph(x.Graph(), 1))
		if a, b := record.ValueOf(one), record.ValueOf(two); a.Op != b.Op || a.Index != 0 || b.Index != 1 {
			t.Errorf("the outputs are recorded as %s and %s", a, b)
		}
		return []*graph.Node{x}
	}, []float32{1})
	if err != nil {
		t.Fatalf("%+v", err)
	}
}

// Inputs are named arg0, arg1, …; variables by their path, which starts with a slash; and changed variables are
// returned before the results, in the order of the store, whatever the order of their use and of their change.
func TestModelExecReturnsChangedVariablesFirstInTheOrderOfTheStore(t *testing.T) {
	backend, recorder := NewRecorder(nil)
	defer backend.Finalize()
	store := model.NewStore()
	scope := store.RootScope().In("scope")
	names := []string{"delta", "alpha", "charlie", "bravo", "echo"}
	vars := map[string]*model.Variable{}
	for i, name := range names {
		vars[name] = scope.VariableWithValue(name, float32(i))
	}
	exec, err := model.NewExec(backend, store, func(_ *model.Scope, x, y *graph.Node) []*graph.Node {
		record.Of(x) // as an annotation does
		g := x.Graph()
		for _, name := range []string{"echo", "charlie", "delta"} { // neither that of names, nor sorted
			v := vars[name]
			v.SetNodeValue(graph.Add(v.NodeValue(g), x))
		}
		return []*graph.Node{graph.Add(vars["bravo"].NodeValue(g), y), x}
	})
	if err != nil {
		t.Fatal(err)
	}
	results, err := exec.Call(float32(10), float32(20))
	if err != nil {
		t.Fatalf("%+v", err)
	}
	var got []float32
	for _, r := range results {
		got = append(got, tensors.ToScalar[float32](r))
	}
	if want := []float32{23, 10}; !slices.Equal(got, want) {
		t.Errorf("the results are %v, not %v", got, want)
	}

	p := recorder.Programs[len(recorder.Programs)-1]
	var inStore, updates []string
	for v := range store.IterVariables() {
		if slices.Contains([]string{"/scope/delta", "/scope/charlie", "/scope/echo"}, v.Path()) {
			inStore = append(inStore, v.Path())
		}
	}
	for _, o := range p.Outputs {
		if o.Updates != nil {
			updates = append(updates, o.Updates.Path)
		} else {
			updates = append(updates, "result")
		}
	}
	if want := append(inStore, "result", "result"); !slices.Equal(updates, want) {
		t.Errorf("the program returns %v, not %v", updates, want)
	}
	for i, x := range p.Inputs {
		if name, want := x.Op.Attrs.(*ir.Parameter).Name, []string{"arg0", "arg1"}[i]; name != want {
			t.Errorf("input %d is %q, not %q", i, name, want)
		}
	}
	for _, v := range p.Variables {
		if name := v.Param.Op.Attrs.(*ir.Parameter).Name; name != v.Path || !strings.HasPrefix(name, "/") {
			t.Errorf("variable %q has a parameter %q", v.Path, name)
		}
	}
	for i, name := range names {
		want := float32(i)
		if slices.Contains(inStore, "/scope/"+name) {
			want += 10
		}
		if got := tensors.ToScalar[float32](vars[name].MustValue()); got != want {
			t.Errorf("variable %s is %v, not %v", name, got, want)
		}
	}
}

// Package record wraps the gradient functions that it finds in graph.VJPRegistration, once, before any graph exists.
func TestGradientsAreBuiltByTheRegisteredFunctions(t *testing.T) {
	calls := 0
	registered := graph.VJPRegistration[graph.NodeTypeTanh]
	defer func() { graph.VJPRegistration[graph.NodeTypeTanh] = registered }()
	graph.VJPRegistration[graph.NodeTypeTanh] = func(n *graph.Node, v []*graph.Node, s shapes.Shape) []*graph.Node {
		calls++
		return registered(n, v, s)
	}
	plain := Plain()
	defer plain.Finalize()
	if _, err := graph.CallOnce(plain, func(x *graph.Node) *graph.Node {
		return graph.Gradient(graph.ReduceAllSum(graph.Tanh(x)), x)[0]
	}, []float32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if calls != 1 {
		t.Errorf("the gradient of Tanh was asked for %d times", calls)
	}
}

// A fused op is built right after its written-out version, which is how record finds the one that belongs to the other.
func TestAFusedOpFollowsItsWrittenOutVersion(t *testing.T) {
	backend, recorder := NewRecorder(nil)
	defer backend.Finalize()
	if _, err := graph.CallOnce(backend, func(x *graph.Node) *graph.Node { return graph.Softmax(x, 0) }, []float32{1, 2}); err != nil {
		t.Fatal(err)
	}
	for _, op := range recorder.Programs[0].Main.Ops {
		if op.Type() != ir.OpFusedSoftmax {
			continue
		}
		if len(op.Twin) != 1 || op.Twin[0].Shape.DType != dtypes.Float32 || op.Twin[0].Op.Type() != ir.OpDiv {
			t.Errorf("the twin of %s is %v", op, op.Twin)
		}
		return
	}
	t.Error("softmax is not fused")
}
