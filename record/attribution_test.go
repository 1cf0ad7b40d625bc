// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/compile"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/exec/local"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/record"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// newBackend records on one device with all TaskGraphs on it; the engine tells what was recorded.
func newBackend(t testing.TB, opts record.Options) (*record.Backend, *compile.Engine) {
	t.Helper()
	cfg, err := config.New(map[string]any{"cluster.colocate_split_and_replicate": true})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := cluster.New(cluster.Spec{Devices: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	inner := equiv.Plain()
	runner := local.New(nil, inner)
	eng := compile.New(compile.Options{Config: cfg, Target: plan.Target{Cluster: cl}}, runner)
	b := record.NewBackend(eng, opts)
	runner.Owner = b
	t.Cleanup(b.Finalize)
	return b, eng
}

// recorded trains a model for a step and returns its training program.
func recorded(t testing.TB, m equiv.Model, opt optimizer.Interface) *ir.Program {
	t.Helper()
	b, eng := newBackend(t, record.Options{})
	if _, err := equiv.Train(b, m, epl.Optimizer(opt), 1); err != nil {
		t.Fatalf("%+v", err)
	}
	return training(t, eng)
}

func training(t testing.TB, eng *compile.Engine) *ir.Program {
	t.Helper()
	for _, c := range eng.Programs() {
		if c.Recorded.IsTraining() {
			return c.Recorded
		}
	}
	t.Fatal("no program with gradients was recorded")
	return nil
}

type group struct {
	taskGraph *ir.TaskGraph
	phase     ir.Phase
	origin    ir.Origin
}

func counts(p *ir.Program) map[group]int {
	n := map[group]int{}
	for _, op := range p.Main.Ops {
		if !op.IsLeaf() {
			n[group{op.TaskGraph, op.Phase, op.Origin}]++
		}
	}
	return n
}

func countsText(p *ir.Program) string {
	n := counts(p)
	var s strings.Builder
	w := tabwriter.NewWriter(&s, 0, 0, 2, ' ', 0)
	for _, tg := range append(p.TaskGraphs, nil) {
		vars := 0
		for _, v := range p.Variables {
			if v.TaskGraph == tg {
				vars++
			}
		}
		for phase := ir.Forward; phase <= ir.Apply; phase++ {
			fmt.Fprintf(w, "  %s\t%s", tg.Title(), phase)
			for o := ir.Recorded; o <= ir.FollowsVariable; o++ {
				if k := n[group{tg, phase, o}]; k > 0 {
					fmt.Fprintf(w, "\t%s %d", o, k)
				}
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "  %s\tvariables %d\n", tg.Title(), vars)
	}
	w.Flush()
	return s.String()
}

func TestOpsPerTaskGraphAndPhaseAreThoseOfTheGoldenFile(t *testing.T) {
	var got strings.Builder
	for _, m := range equiv.Models() {
		for _, o := range []struct {
			name string
			opt  optimizer.Interface
		}{{"sgd", optimizer.StochasticGradientDescent()}, {"adam", optimizer.Adam().Done()}} {
			fmt.Fprintf(&got, "%s, %s:\n%s", m.Name, o.name, countsText(recorded(t, m, o.opt)))
		}
	}
	const file = "testdata/attribution.txt"
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
		t.Errorf("attribution changed; run with -update if that is right. Got:\n%s", got.String())
	}
}

// Values flow forward from earlier TaskGraphs to later ones, and gradients back. Skip connections and shared values
// obey that, too; an op in the wrong TaskGraph does not.
func TestValuesFlowForwardAndGradientsFlowBack(t *testing.T) {
	for _, m := range equiv.Models() {
		p := recorded(t, m, optimizer.Adam().Done())
		isForward := func(op *ir.Op) bool { return op.Phase == ir.Forward || op.Origin == ir.Rematerialised }
		for _, op := range p.Main.Ops {
			if op.Phase == ir.Apply || op.TaskGraph == nil {
				continue
			}
			op.Uses(func(v *ir.Value) {
				from := v.Op
				if from.IsLeaf() || from.TaskGraph == nil {
					return
				}
				_, barrier := op.Attrs.(*ir.SchedulingBarrier) // reads the gradient that triggers it
				back := !isForward(op) && !isForward(from)
				if (!back && !barrier && from.TaskGraph.ID > op.TaskGraph.ID) || (back && from.TaskGraph.ID < op.TaskGraph.ID) {
					t.Errorf("%s: %s in %s reads %s in %s", m.Name, op, op.TaskGraph.Title(), from, from.TaskGraph.Title())
				}
			})
		}
	}
}

// live drops what nothing uses, such as gradients of constants that GoMLX shares between layers.
func live(t *testing.T, p *ir.Program) *ir.Program {
	t.Helper()
	if _, err := passes.Run(p, passes.Set{"dead-code": true}, passes.Options{}, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

func sameCounts(t *testing.T, p *ir.Program, one, two *ir.TaskGraph) {
	t.Helper()
	n := counts(p)
	for phase := ir.Forward; phase <= ir.Apply; phase++ {
		for o := ir.Recorded; o <= ir.FollowsVariable; o++ {
			if a, b := n[group{one, phase, o}], n[group{two, phase, o}]; a != b {
				t.Errorf("%s, %s: %d ops in %s, %d in %s, which are the same layer", phase, o, a, one.Title(), b, two.Title())
			}
		}
	}
}

func TestEqualLayersGetEqualNumbersOfOps(t *testing.T) {
	for _, opt := range []optimizer.Interface{optimizer.StochasticGradientDescent(), optimizer.Adam().Done()} {
		p := live(t, recorded(t, equiv.Models()[0], opt))
		sameCounts(t, p, p.TaskGraphs[1], p.TaskGraphs[2])
	}
}

func TestRematerialisedClonesStayInTheTaskGraphOfTheirOriginal(t *testing.T) {
	m := equiv.Models()[slices.IndexFunc(equiv.Models(), func(m equiv.Model) bool { return m.Name == "custom-gradient" })]
	p := live(t, recorded(t, m, optimizer.StochasticGradientDescent()))
	sameCounts(t, p, p.TaskGraphs[1], p.TaskGraphs[2])
	clones := counts(p)
	for _, tg := range p.TaskGraphs {
		if clones[group{tg, ir.Backward, ir.Rematerialised}] < 10 {
			t.Errorf("%s has only %d clones", tg.Title(), clones[group{tg, ir.Backward, ir.Rematerialised}])
		}
	}
	for _, op := range p.Main.Ops {
		if _, ok := op.Attrs.(*ir.SchedulingBarrier); ok && op.Origin != ir.Rematerialised {
			t.Errorf("%s starts a recomputation but counts as %s", op.Text(), op.Origin)
		}
		if op.Origin == ir.Rematerialised && op.Source == "" {
			t.Errorf("%s lost the line of its original", op.Text())
		}
	}
}

func TestApplyOpsAndOptimizerStateFollowTheirVariable(t *testing.T) {
	p := recorded(t, equiv.Models()[3], optimizer.Adam().Done())
	home := map[string]*ir.TaskGraph{}
	for _, v := range p.Variables {
		if v.Trainable {
			home[v.Path] = v.TaskGraph
			if v.TaskGraph == nil {
				t.Errorf("%s is in no TaskGraph", v.Path)
			}
		}
	}
	slots := 0
	for _, v := range p.Variables {
		if !v.Trainable && strings.Contains(v.Path, "moment") {
			slots++
			for path, tg := range home {
				if strings.Contains(v.Path, path+"_") && v.TaskGraph != tg {
					t.Errorf("%s is in %s, its variable in %s", v.Path, v.TaskGraph.Title(), tg.Title())
				}
			}
		}
		if v.Path == "/global_step" && v.TaskGraph != nil {
			t.Errorf("the step counter serves all TaskGraphs but is in %s", v.TaskGraph.Title())
		}
	}
	if slots != 2*len(home) {
		t.Errorf("%d slots for %d variables", slots, len(home))
	}
	for _, g := range p.Gradients {
		if g.Variable.Update.Op.TaskGraph != g.Variable.TaskGraph {
			t.Errorf("the update of %s is in %s", g.Variable.Path, g.Variable.Update.Op.TaskGraph.Title())
		}
	}
}

func TestMetricsBelongToForwardAlthoughRecordedAfterTheOptimizer(t *testing.T) {
	p := recorded(t, equiv.Models()[0], optimizer.Adam().Done())
	seen := 0
	for _, v := range p.Variables {
		if strings.HasPrefix(v.Path, "/metrics/") {
			seen++
			if v.Update.Op.Phase != ir.Forward {
				t.Errorf("%s is updated in %s", v.Path, v.Update.Op.Phase)
			}
		}
		if strings.HasPrefix(v.Path, "/layer_") && v.Update != nil && v.Trainable == false && v.Update.Op.Phase != ir.Forward {
			t.Errorf("%s is updated in %s", v.Path, v.Update.Op.Phase)
		}
	}
	if seen == 0 {
		t.Error("no metric was recorded")
	}
}

func TestGraphsBuiltAtTheSameTimeStayApart(t *testing.T) {
	b, eng := newBackend(t, record.Options{})
	want := map[string]int{}
	models := equiv.Models()
	for _, m := range models {
		want[countsText(recorded(t, m, optimizer.Adam().Done()))]++
	}
	var wg sync.WaitGroup
	for _, m := range models {
		wg.Go(func() {
			if _, err := equiv.Train(b, m, epl.Optimizer(optimizer.Adam().Done()), 2); err != nil {
				t.Errorf("%s: %+v", m.Name, err)
			}
		})
	}
	wg.Wait()
	for _, c := range eng.Programs() {
		if c.Recorded.IsTraining() {
			want[countsText(c.Recorded)]--
		}
	}
	for text, n := range want {
		if n != 0 {
			t.Errorf("built alone and built together differ by %d programs like\n%s", n, text)
		}
	}
}

func TestOpsKnowTheUsersLine(t *testing.T) {
	p := recorded(t, equiv.Models()[3], optimizer.StochasticGradientDescent())
	for _, op := range p.Main.Ops {
		if _, ok := op.Attrs.(*ir.DotGeneral); ok && !strings.HasPrefix(string(op.Source), "equiv/models.go:") {
			t.Errorf("%s does not know its line", op.Text())
		}
	}
	for _, tg := range p.TaskGraphs {
		if !strings.HasPrefix(string(tg.Source), "equiv/models.go:") {
			t.Errorf("%s does not know its line: %q", tg.Title(), tg.Source)
		}
	}
}

// A scope is that of the variables that an op, its input or its forward op reads.
func TestOpsKnowTheScopeOfTheModel(t *testing.T) {
	type key struct {
		op    ir.OpType
		phase ir.Phase
	}
	found := map[key]map[string]int{}
	count := func(p *ir.Program) {
		for _, op := range p.Main.Ops {
			k := key{op.Type(), op.Phase}
			if found[k] == nil {
				found[k] = map[string]int{}
			}
			found[k][op.Scope]++
		}
	}
	count(recorded(t, equiv.Models()[3], optimizer.StochasticGradientDescent())) // skip
	for _, want := range []struct {
		key
		scopes map[string]int
	}{
		{key{ir.OpDotGeneral, ir.Forward}, map[string]int{"/first/dense": 1, "/second/dense": 1, "/third/dense": 1}},
		{key{ir.OpTanh, ir.Forward}, map[string]int{"/first/dense": 1, "/second/layer_normalization": 1}},
		{key{ir.OpDotGeneral, ir.Backward}, map[string]int{"/first/dense": 2, "/second/dense": 2, "/third/dense": 2}},
	} {
		if got := found[want.key]; !maps.Equal(got, want.scopes) {
			t.Errorf("%s in %s is in %v, want %v", want.op, want.phase, got, want.scopes)
		}
	}
	for scope := range found[key{ir.OpSub, ir.Apply}] {
		if !strings.HasPrefix(scope, "/first/") && !strings.HasPrefix(scope, "/second/") && !strings.HasPrefix(scope, "/third/") {
			t.Errorf("an update is in scope %q", scope)
		}
	}
	if len(found[key{ir.OpSub, ir.Apply}]) == 0 {
		t.Error("there are no updates")
	}
}

// An average of the weights, taken after the optimizer, is computed once per step from what it updated.
func TestWhatFollowsTheOptimizerAndReadsItsUpdatesBelongsToApply(t *testing.T) {
	m := equiv.Models()[3]
	build := m.Build
	m.Build = func(scope *model.Scope, x *graph.Node) *graph.Node {
		train.AddPerStepUpdateGraphFn(scope, x.Graph(), func(scope *model.Scope, g *graph.Graph) {
			w := scope.Store().GetVariable("/first/dense/weights")
			if w == nil {
				t.Error("the model has no such variable")
				return
			}
			average := scope.In("average").WithInitializer(initializer.Zero).VariableWithShape("weights", w.Shape()).SetTrainable(false)
			average.SetNodeValue(graph.Add(graph.MulScalar(average.NodeValue(g), 0.9), graph.MulScalar(w.NodeValue(g), 0.1)))
		})
		return build(scope, x)
	}
	p := recorded(t, m, optimizer.StochasticGradientDescent())
	for _, v := range p.Variables {
		if v.Path == "/average/weights" {
			if got := v.Update.Op; got.Phase != ir.Apply || got.TaskGraph.Title() != "first" {
				t.Errorf("the average is computed in %s, %s", got.Phase, got.TaskGraph.Title())
			}
			return
		}
	}
	t.Error("the average was not recorded")
}
