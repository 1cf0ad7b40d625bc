// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"golang.org/x/tools/txtar"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
)

var update = flag.Bool("update", false, "rewrite the part after \"-- after --\" in testdata")

// Every pass has a file in testdata with a program before and after it.
func TestEachPassDoesWhatItsGoldenFileShows(t *testing.T) {
	for _, pass := range passes.Table {
		t.Run(pass.Name, func(t *testing.T) {
			file := "testdata/" + pass.Name + ".txt"
			before, after := golden(t, file)
			p := parse(t, before)
			steps, err := passes.Run(p, passes.Set{pass.Name: true}, options(pass), nil)
			if err != nil {
				t.Fatal(err)
			}
			if steps[0].Changes == 0 {
				t.Error("the pass says that it changed nothing")
			}
			if *update {
				text := "-- before --\n" + before + "-- after --\n" + p.String()
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				after = p.String()
			}
			if got := p.String(); got != after {
				t.Errorf("run with -update if this is right:\n%s", got)
			}
			if !pass.Needed { // what a needed pass makes runs in pieces
				sameResults(t, pass, parse(t, before), p)
			}
		})
	}
}

// Run again on what it left, with the same options, a pass changes nothing; or, if it says that it runs once, it is refused.
func TestRunningAPassTwiceChangesNothingMore(t *testing.T) {
	for _, pass := range passes.Table {
		before, _ := golden(t, "testdata/"+pass.Name+".txt")
		p := parse(t, before)
		if _, err := passes.Run(p, passes.Set{pass.Name: true}, options(pass), nil); err != nil {
			t.Fatal(err)
		}
		runAgain(t, pass, p, options(pass))
	}
}

func TestRunningEachPassOfAPlanTwiceChangesNothingMore(t *testing.T) {
	on, err := passes.Parse("all", nil)
	if err != nil {
		t.Fatal(err)
	}
	stages := recordedStep(t, equiv.Models()[0])
	places := [][]int{{0, 1}} // a stage of two devices, and others of one
	for i := range stages.TaskGraphs[1:] {
		places = append(places, []int{i + 2})
	}
	transformer := recordedStep(t, transformerOf(2, epl.Replicate(1, "all")))
	for name, c := range map[string]struct {
		p *ir.Program
		o passes.Options
	}{
		"one device": {transformer, passes.Options{}},
		"memory": {transformer, passes.Options{Local: &ir.Local{Replicas: 2, MicroBatches: 3}, Checkpoint: "auto", Share: passes.ShareWeights, ApplyGroups: 3,
			AMP: dtypes.BFloat16, AMPBarriers: true}},
		"devices": {transformer, passes.Options{Local: &ir.Local{Replicas: 2, MicroBatches: 1}, Places: [][]int{{0, 1}}, Share: passes.ShareGradients, Regions: true, Offload: true}},
		"stages":  {stages, passes.Options{Local: &ir.Local{Replicas: 1, MicroBatches: 3}, Places: places, Checkpoint: "auto", CheckGradients: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Before = plan.Choose
			_, err := passes.Run(c.p.Clone(), on, c.o, func(pass passes.Pass, p *ir.Program) { runAgain(t, pass, p, c.o) })
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// runAgain runs a pass on a program that has just been through it.
func runAgain(t *testing.T, pass passes.Pass, p *ir.Program, o passes.Options) {
	t.Helper()
	once := p.String()
	steps, err := passes.Run(p, passes.Set{pass.Name: true}, o, nil)
	switch {
	case pass.Once:
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("pass %q, which may run only once", pass.Name)) {
			t.Errorf("%s: a second run gives %v", pass.Name, err)
		}
	case err != nil:
		t.Errorf("%s: a second run gives %v", pass.Name, err)
	case steps[0].Changes != 0:
		t.Errorf("%s: the second run made %d changes", pass.Name, steps[0].Changes)
	}
	if p.String() != once {
		t.Errorf("%s: the second run changed the program", pass.Name)
	}
}

// The order of passes is what their declarations allow: others are refused, with the passes that are in the wrong order.
func TestOnlyOrdersThatTheDeclarationsAllowAreRun(t *testing.T) {
	on, err := passes.Parse("all", nil)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := golden(t, "testdata/taskgraphs.txt")
	run := func(order []passes.Pass) error {
		_, err := passes.RunTable(order, parse(t, before), on, passes.Options{}, nil)
		return err
	}
	r := rand.New(rand.NewSource(1))
	refused, ran := 0, 0
	for range 500 {
		order := slices.Clone(passes.Table)
		for range 1 + r.Intn(3) {
			i := r.Intn(len(order) - 1)
			order[i], order[i+1] = order[i+1], order[i]
		}
		want := allowed(order)
		if err := run(order); (err == nil) != want {
			t.Fatalf("%s: allowed: %v, but %v", names(order), want, err)
		}
		if want {
			ran++
		} else {
			refused++
		}
	}
	if refused < 50 || ran < 50 {
		t.Errorf("%d orders were refused, %d not: there should be many of both", refused, ran)
	}
	move := func(name, before string) []passes.Pass {
		at := func(s []passes.Pass, name string) int {
			return slices.IndexFunc(s, func(p passes.Pass) bool { return p.Name == name })
		}
		pass := passes.Table[at(passes.Table, name)]
		rest := slices.DeleteFunc(slices.Clone(passes.Table), func(p passes.Pass) bool { return p.Name == name })
		return slices.Insert(rest, at(rest, before), pass)
	}
	for _, c := range []struct{ name, before, want string }{
		{"dead-code", "taskgraphs", `pass "taskgraphs" needs the fact "op-of", which does not hold in program "two stages": pass "dead-code" has ended it`},
		{"places", "local-view", `pass "places" needs the fact "instances", which does not hold in program "two stages": it comes from pass "local-view", which has not run`},
		{"local-view", "common", `pass "local-view" needs the fact "precision", which does not hold in program "two stages": it comes from pass "amp", which has not run`},
	} {
		if err := run(move(c.name, c.before)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s before %s gives %v", c.name, c.before, err)
		}
	}
}

// allowed tells whether every pass of an order has what it needs, by its declaration.
func allowed(order []passes.Pass) bool {
	holds := map[passes.Fact]bool{passes.OpOf: true, passes.GlobalView: true}
	for _, pass := range order {
		if pass.XLA {
			continue // not for this program
		}
		for _, f := range pass.Needs {
			if !holds[f] {
				return false
			}
		}
		for _, f := range pass.Ends {
			holds[f] = false
		}
		for _, f := range pass.Leaves {
			holds[f] = true
		}
	}
	return true
}

func names(order []passes.Pass) (names []string) {
	for _, p := range order {
		names = append(names, p.Name)
	}
	return names
}

// options are what the golden file of a pass is made with.
func options(p passes.Pass) (o passes.Options) {
	o.Before = plan.Choose
	switch p.Name {
	case "local-view":
		o.Local = &ir.Local{Replicas: 2, MicroBatches: 3}
	case "regions", "recompute":
		o.Checkpoint = "collection"
	case "zero":
		o.Share = passes.ShareWeights
	case "apply-groups":
		o.ApplyGroups = 2
	case "amp":
		o.AMP = dtypes.BFloat16
	case "gelu", "layer-norm", "softmax", "variance", "pad", "concat", "sums", "kernels", "norm-kernels", "split":
		o.AMP, o.AMPBarriers = dtypes.BFloat16, true
	case "taskgraphs":
		o.Places = [][]int{{0}, {1}}
	}
	return o
}

func golden(t *testing.T, file string) (before, after string) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil || len(a.Files) != 2 {
		t.Fatalf("%s, with -- before -- and -- after --: %v", file, err)
	}
	return string(a.Files[0].Data), string(a.Files[1].Data)
}

func parse(t *testing.T, text string) *ir.Program {
	t.Helper()
	p, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	return p
}

// bounds say how far results may be off, for passes that do more than take sums in another order: GELU is another function, and what is rounded to
// bfloat16 in the programs of others may be rounded the other way.
var bounds = map[string]float64{"gelu": 1e-4, "variance": 1e-2, "pad": 1e-2, "sums": 1e-2, "split": 1e-2}

// sameResults runs both programs on the pure-Go backend with the same random inputs.
func sameResults(t *testing.T, pass passes.Pass, a, b *ir.Program) {
	t.Helper()
	x, y := run(t, a), run(t, b)
	bound := cmp.Or(bounds[pass.Name], 1e-5)
	for i := range x {
		for j := range x[i] {
			d := math.Abs(float64(x[i][j] - y[i][j]))
			if pass.Exact && d != 0 || d > bound*(1+math.Abs(float64(x[i][j]))) {
				t.Errorf("output %d, element %d: %v before, %v after", i, j, x[i][j], y[i][j])
			}
		}
	}
}

func run(t *testing.T, p *ir.Program) [][]float32 {
	t.Helper()
	backend, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	exec, err := emit.Program(backend, p)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewSource(1))
	var ins []compute.Buffer
	for _, v := range p.Main.Params {
		numbers := make([]float64, v.Shape.Size())
		for i := range numbers {
			if numbers[i] = r.Float64()*2 - 1; v.Shape.DType.IsInt() {
				numbers[i] = float64(r.Intn(8))
			}
		}
		flat := shapes.CastAsDType(numbers, v.Shape.DType)
		in, err := backend.BufferFromFlatData(0, flat, v.Shape)
		if err != nil {
			t.Fatal(err)
		}
		ins = append(ins, in)
	}
	outs, err := exec.Execute(ins, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var results [][]float32
	for i, o := range outs {
		flat := make([]float32, p.Main.Outputs[i].Shape.Size())
		if err := o.ToFlatData(flat); err != nil {
			t.Fatal(err)
		}
		results = append(results, flat)
	}
	return results
}

func TestPassesAreSwitchedByName(t *testing.T) {
	for _, c := range []struct {
		spec   string
		want   string
		warned int
	}{
		{"", "fused empty dead-code common gelu layer-norm softmax variance pad concat split kernels transpose engine fuse-elementwise fuse-reduce fuse-dot loops views in-place", 0},
		{"none", "", 0},
		{"none,common", "common", 0},
		{"-fused, -COMMON", "empty dead-code gelu layer-norm softmax variance pad concat split kernels transpose engine fuse-elementwise fuse-reduce fuse-dot loops views in-place", 0},
		{"none,all,-common", "fused empty dead-code gelu layer-norm softmax variance pad concat split kernels norm-kernels sums transpose engine fuse-elementwise fuse-reduce fuse-dot loops views in-place", 0},
		{"all,-swap-dot,-sum-dot,-fused", "empty dead-code common gelu layer-norm softmax variance pad concat split kernels norm-kernels sums transpose engine fuse-elementwise fuse-reduce fuse-dot loops views in-place", 2},
		{"none,sums", "sums", 0},
		{"none,engine,-views,in-place", "engine in-place", 0},
	} {
		warned := 0
		set, err := passes.Parse(c.spec, func(line string) {
			warned++
			if !strings.Contains(line, "is gone: the engine for CPUs") {
				t.Errorf("%q warns: %s", c.spec, line)
			}
		})
		if warned != c.warned {
			t.Errorf("%q gives %d warnings, want %d", c.spec, warned, c.warned)
		}
		if err != nil {
			t.Errorf("%q: %v", c.spec, err)
			continue
		}
		var on []string
		for _, p := range passes.Table {
			if p.Needed && !set[p.Name] {
				t.Errorf("%q switches %q off", c.spec, p.Name)
			} else if set[p.Name] && !p.Needed {
				on = append(on, p.Name)
			}
		}
		for _, x := range passes.Switches {
			if set[x.Name] {
				on = append(on, x.Name)
			}
		}
		if got := strings.Join(on, " "); got != c.want {
			t.Errorf("%q: %q, want %q", c.spec, got, c.want)
		}
	}
	_, err := passes.Parse("-comon", nil)
	if want := `epl: there is no pass "comon" (in "-comon")`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("an unknown pass gives %v", err)
	}
	_, err = passes.Parse("none,dot-layout", nil)
	if want := `epl: pass "dot-layout" (in "none,dot-layout") is gone: `; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("a pass of an earlier version gives %v", err)
	}
}

// Names are unique, reasons are given: the tables are documentation, too.
func TestTheTablesNameAndExplainEveryPassAndSwitch(t *testing.T) {
	seen := map[string]bool{}
	all := passes.Table
	for _, x := range passes.Switches {
		all = append(all, passes.Pass{Name: x.Name, Why: x.Why})
	}
	for _, p := range all {
		if seen[p.Name] || p.Name == "all" || p.Name == "none" || p.Name != strings.ToLower(p.Name) {
			t.Errorf("%q is no good name", p.Name)
		}
		seen[p.Name] = true
		if len(p.Why) < 20 {
			t.Errorf("%s does not say why it exists", p.Name)
		}
	}
}

func ExampleRun() {
	p, err := ir.Parse(`program "example"
input %0
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[4]} -> float32[4] : forward
  %1 = Exp(%0) -> float32[4] : forward
  %2 = Exp(%0) -> float32[4] : forward
  %3 = Add(%1, %2) -> float32[4] : forward
  return %3
}`)
	if err != nil {
		panic(err)
	}
	on, err := passes.Parse("none,common", nil)
	if err != nil {
		panic(err)
	}
	steps, err := passes.Run(p, on, passes.Options{}, nil)
	if err != nil {
		panic(err)
	}
	for _, s := range steps {
		if s.Changes > 0 {
			fmt.Printf("%s: %d → %d ops\n", s.Pass, s.OpsBefore, s.OpsAfter)
		}
	}
	// Output: common: 4 → 3 ops
}
