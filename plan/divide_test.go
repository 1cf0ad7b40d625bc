// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
)

// writer writes small training programs: a forward part, and the backward and apply parts that it gives rise to.
type writer struct {
	p     *ir.Program
	width int
	tape  []*ir.Op // forward ops, but leaves
}

func newWriter(width int) *writer {
	w := &writer{p: ir.NewProgram("test"), width: width}
	w.p.TaskGraphs = []*ir.TaskGraph{{Kind: ir.Replicate, Devices: 1, Implicit: true}}
	w.p.OutputsKnown = true
	return w
}

func (w *writer) op(phase ir.Phase, attrs ir.Attrs, out shapes.Shape, in ...*ir.Value) *ir.Value {
	op := w.p.NewOp(attrs, in, out)
	op.Phase, op.TaskGraph = phase, w.p.TaskGraphs[0]
	w.p.Main.Append(op)
	return op.Outputs[0]
}

func (w *writer) shape() shapes.Shape { return shapes.Make(dtypes.Float32, w.width) }

func (w *writer) input() *ir.Value {
	v := w.op(ir.Forward, &ir.Parameter{Name: "arg" + string(rune('0'+len(w.p.Inputs))), Shape: w.shape()}, w.shape())
	w.p.Inputs = append(w.p.Inputs, v)
	return v
}

func (w *writer) variable() *ir.Value {
	path := "/w" + strings.Repeat("'", len(w.p.Variables))
	v := w.op(ir.Forward, &ir.Parameter{Name: path, Shape: w.shape()}, w.shape())
	w.p.Variables = append(w.p.Variables, &ir.Variable{Path: path, Param: v, Trainable: true})
	return v
}

func (w *writer) forward(attrs ir.Attrs, in ...*ir.Value) *ir.Value {
	v := w.op(ir.Forward, attrs, w.shape(), in...)
	w.tape = append(w.tape, v.Op)
	return v
}

// train ends the program with the sum of x as loss, its gradients (not the right ones, but read and written like those)
// and updates.
func (w *writer) train(x *ir.Value) *ir.Program {
	loss := w.op(ir.Forward, &ir.ReduceSum{Axes: []int{0}}, shapes.Make(dtypes.Float32), x)
	w.p.Loss = loss
	gradient := map[*ir.Value]*ir.Value{}
	back := func(of *ir.Op, v, part *ir.Value) {
		part.Op.Of, part.Op.Origin = of.Outputs[0], ir.VJP
		if sum := gradient[v]; sum != nil {
			part = w.op(ir.Backward, &ir.Add{}, v.Shape, sum, part)
			part.Op.Origin = ir.FollowsInputs
		}
		gradient[v] = part
	}
	back(loss.Op, x, w.op(ir.Backward, &ir.BroadcastInDim{OutputShape: w.shape()}, w.shape(), loss))
	for i := len(w.tape) - 1; i >= 0; i-- {
		op := w.tape[i]
		g := gradient[op.Outputs[0]]
		if g == nil {
			continue
		}
		for j, in := range op.Inputs {
			other := op.Inputs[len(op.Inputs)-1-j]
			if _, isConst := in.Op.Attrs.(*ir.Constant); !isConst {
				back(op, in, w.op(ir.Backward, &ir.Mul{}, w.shape(), g, other))
			}
		}
	}
	for _, v := range w.p.Variables {
		if g := gradient[v.Param]; g != nil {
			w.p.Gradients = append(w.p.Gradients, ir.Gradient{Variable: v, Value: g})
			v.Update = w.op(ir.Apply, &ir.Sub{}, w.shape(), v.Param, g)
			w.p.Main.Outputs = append(w.p.Main.Outputs, v.Update)
			w.p.Outputs = append(w.p.Outputs, ir.Output{Updates: v})
		}
	}
	w.p.Main.Outputs = append(w.p.Main.Outputs, loss)
	w.p.Outputs = append(w.p.Outputs, ir.Output{})
	return w.p
}

// units is a model of so many equal ops.
func units(n int) *ir.Program {
	w := newWriter(4096)
	x := w.input()
	for range n {
		x = w.forward(&ir.Mul{}, x, w.variable())
	}
	return w.train(x)
}

// slow computes slowly, and fast sends fast, so that only computing counts.
var slow, fast = cost.Flat(1e6, 1e15, 0), cost.Link{Bandwidth: 1e15}

func stages(t *testing.T, p *ir.Program, n int, device *cost.Profile, link cost.Link) *Cut {
	t.Helper()
	cut, err := StagesAlike(p, n, device, link)
	if err == nil {
		err = cut.Apply(p)
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if len(cut.Stages) != n || len(p.TaskGraphs) != n {
		t.Fatalf("%d stages, %d TaskGraphs, not %d", len(cut.Stages), len(p.TaskGraphs), n)
	}
	return cut
}

// count counts the ops of a type in each stage, and checks that they come in order.
func count(t *testing.T, p *ir.Program, of ir.OpType, phase ir.Phase) []int {
	t.Helper()
	n := make([]int, len(p.TaskGraphs))
	before := 0
	for _, op := range p.Main.Ops {
		if op.Type() != of || op.Phase != phase {
			continue
		}
		id := op.TaskGraph.ID
		if phase == ir.Forward && id < before {
			t.Errorf("%s is in stage %d, after an op of stage %d", op, id, before)
		}
		before = id
		n[id]++
	}
	return n
}

func TestEqualOpsAreSharedOutEvenly(t *testing.T) {
	for _, c := range []struct{ ops, stages int }{{10, 1}, {10, 2}, {10, 5}, {10, 3}, {10, 4}, {7, 4}, {5, 4}, {12, 8}, {9, 9}} {
		p := units(c.ops)
		stages(t, p, c.stages, slow, fast)
		for i, n := range count(t, p, ir.OpMul, ir.Forward) {
			if least := c.ops / c.stages; n < least || n > least+1 || n > least && c.ops%c.stages == 0 {
				t.Errorf("%d ops in %d stages: stage %d has %d", c.ops, c.stages, i, n)
			}
		}
	}
}

// blocks is a model of equal blocks of five ops.
func blocks(n int) *ir.Program {
	w := newWriter(4096)
	x := w.input()
	for range n {
		h := w.forward(&ir.Mul{}, x, w.variable())
		h = w.forward(&ir.Exp{}, h)
		h = w.forward(&ir.Add{}, h, w.variable())
		h = w.forward(&ir.Mul{}, h, w.variable())
		x = w.forward(&ir.Sub{}, h, x)
	}
	return w.train(x)
}

func TestEqualBlocksStayWhole(t *testing.T) {
	for _, device := range []*cost.Profile{slow, cost.Default} {
		p := blocks(8)
		cut := stages(t, p, 4, device, cost.DefaultLink)
		for i, n := range count(t, p, ir.OpExp, ir.Forward) {
			if n != 2 || cut.Stages[i].Blocks != 2 {
				t.Errorf("stage %d has %d blocks, and says %d", i, n, cut.Stages[i].Blocks)
			}
		}
		for _, of := range []struct {
			t     ir.OpType
			phase ir.Phase
		}{{ir.OpSub, ir.Forward}, {ir.OpMul, ir.Forward}, {ir.OpSub, ir.Apply}} {
			n := count(t, p, of.t, of.phase)
			if n[1] != n[2] || n[0] != n[1] {
				t.Errorf("stages of equal blocks have %v ops %s in %s", n, of.t, of.phase)
			}
		}
		if len(cut.Notes) != 1 || !strings.Contains(cut.Notes[0], "5 ops 8 times") {
			t.Errorf("notes: %q", cut.Notes)
		}
	}
}

func TestBlocksAreCutIfWholeOnesAreTooUneven(t *testing.T) {
	p := blocks(3)
	cut := stages(t, p, 2, slow, fast)
	whole := 0
	for _, s := range cut.Stages {
		whole += s.Blocks
	}
	if whole != 2 {
		t.Errorf("%d of 3 blocks are whole in 2 stages", whole)
	}
	if n := cut.Notes[len(cut.Notes)-1]; !strings.Contains(n, "Blocks are cut") {
		t.Errorf("the last note is %q", n)
	}
	cut = stages(t, blocks(2), 11, slow, fast)
	if n := cut.Notes[len(cut.Notes)-1]; !strings.Contains(n, "fewer places between blocks") {
		t.Errorf("the last note is %q", n)
	}
}

func TestCutsPreferPlacesWhereLessCrosses(t *testing.T) {
	w := newWriter(4096)
	x := w.input()
	y := w.forward(&ir.Mul{}, x, w.variable())
	for i := range 8 { // in the middle, at 4, nothing but one value crosses
		if i == 4 {
			x, y = w.forward(&ir.Add{}, x, y), nil
		}
		x = w.forward(&ir.Exp{}, x)
		if y == nil {
			y = x
		}
		y = w.forward(&ir.Mul{}, y, x)
	}
	p := w.train(w.forward(&ir.Add{}, x, y))
	cut := stages(t, p, 2, slow, cost.Link{Bandwidth: 1e6})
	if got, want := cut.Stages[0].SentOn, 1*w.shape().ByteSize(); got != want {
		t.Errorf("%d bytes cross, %d need to", got, want)
	}
}

// random writes a program of ops of different weight, with connections over any distance.
func random(r *rand.Rand, n int) *ir.Program {
	w := newWriter(1 + r.Intn(4096))
	values := []*ir.Value{w.input(), w.input()}
	pick := func() *ir.Value { return values[max(0, len(values)-1-int(r.ExpFloat64()*1.5))] }
	shared := w.variable()
	for range n {
		var v *ir.Value
		switch r.Intn(6) {
		case 0:
			v = w.forward(&ir.Mul{}, pick(), w.variable())
		case 1:
			v = w.forward(&ir.Tanh{}, pick())
		case 2:
			v = w.forward(&ir.Pow{}, pick(), shared)
		case 3:
			v = w.forward(&ir.Div{}, pick(), pick())
		case 4:
			v = w.forward(&ir.Reshape{Dimensions: []int{w.width}}, pick())
		default:
			v = w.forward(&ir.Add{}, pick(), pick())
		}
		values = append(values, v)
	}
	return w.train(w.forward(&ir.Mul{}, values[len(values)-1], shared))
}

// times is how long each stage takes on devices of these speeds, found from the definition.
func times(c *chain, ends []int, speeds []float64) []time.Duration {
	d := division{ends: ends}
	t := make([]time.Duration, len(ends))
	type arrival struct {
		v  *ir.Value
		to int
	}
	arrived := map[arrival]bool{}
	down, up := make([]int64, len(ends)), make([]int64, len(ends))
	parts := c.gradientParts()
	for op, at := range c.at {
		if !c.live[op] {
			continue
		}
		to := d.stage(at)
		t[to] += c.device.Op(op)
		op.Uses(func(v *ir.Value) {
			from := d.stage(c.at[v.Op])
			if v.Op.IsLeaf() {
				if c.p.Variable(v) != nil {
					return
				}
				from = 0
			}
			if from == to || arrived[arrival{v, to}] || parts[v] {
				return
			}
			arrived[arrival{v, to}] = true
			if from < to {
				down[to] += v.Bytes()
			} else {
				up[to] += v.Bytes()
			}
		})
	}
	for i := range t {
		if speeds != nil {
			t[i] = time.Duration(float64(t[i]) / speeds[i])
		}
		t[i] += c.link.Time(down[i]) + c.link.Time(up[i])
	}
	return t
}

func TestNoCutIsBetterThanTheOneFound(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	tried := 0
	for range 600 {
		p := random(r, 3+r.Intn(13))
		device := cost.Flat(1e9, 1e9*(1+r.Float64()*20), time.Duration(r.Intn(2000)))
		link := cost.Link{Bandwidth: 1e8 * math.Pow(10, r.Float64()*3), Latency: time.Duration(r.Intn(20000))}
		n := 1 + r.Intn(5)
		c := chainOf(p, device, link)
		mayCut := c.anywhere()
		for i := 1; i < len(c.Ops); i++ {
			mayCut[i] = r.Intn(10) > 0
		}
		var speeds []float64 // of the devices of stages; nil: they are alike
		if r.Intn(2) == 0 {
			speeds = slices.Repeat([]float64{1}, n)
			for i := range r.Intn(n + 1) {
				speeds[i] = 0.2 + r.Float64()*float64(1+r.Intn(8))
			}
			if alike, also := c.divide(n, mayCut, slices.Repeat(pace{1}, n)); also {
				if plain, _ := c.divide(n, mayCut, nil); !slices.Equal(alike.ends, plain.ends) || alike.slowest != plain.slowest {
					t.Fatalf("devices of speed 1: cut at %v, and at %v if nothing is said of them", alike.ends, plain.ends)
				}
			}
		}
		found, ok := c.divide(n, mayCut, speeds)
		var try func(ends []int, start int)
		best, squares := time.Duration(math.MaxInt64), 0.0
		try = func(ends []int, start int) {
			if len(ends) == n {
				if start < len(c.Ops) {
					return
				}
				tried++
				slowest, sum := time.Duration(0), 0.0
				for _, x := range times(c, ends, speeds) {
					slowest = max(slowest, x)
					sum += x.Seconds() * x.Seconds()
				}
				if slowest < best || slowest == best && sum < squares {
					best, squares = slowest, sum
				}
				return
			}
			for end := start + 1; end <= len(c.Ops); end++ {
				if mayCut[end] && c.costly[end] > c.costly[start] {
					try(append(ends[:len(ends):len(ends)], end), end)
				}
			}
		}
		try(nil, 0)
		if ok != (best < math.MaxInt64) {
			t.Fatalf("cut: %v, best %v", ok, best)
		}
		if !ok {
			continue
		}
		sum := 0.0
		for _, x := range times(c, found.ends, speeds) {
			sum += x.Seconds() * x.Seconds()
		}
		if found.slowest != best || sum > squares*(1+1e-9) {
			t.Fatalf("speeds %v, cut at %v: %v, squares %g; the best has %v, %g\n%s", speeds, found.ends, found.slowest, sum, best, squares, p)
		}
		cut := c.explain(found, nil, speeds)
		for i, x := range times(c, found.ends, speeds) {
			if cut.Stages[i].Time != x {
				t.Fatalf("stage %d is said to take %v, and takes %v", i, cut.Stages[i].Time, x)
			}
		}
	}
	if tried < 10000 {
		t.Errorf("only %d cuts were compared", tried)
	}
}

func TestRandomProgramsFlowForwardAndBack(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	for range 200 {
		p := random(r, 5+r.Intn(40))
		stages(t, p, 1+r.Intn(4), cost.Default, cost.DefaultLink)
		for _, op := range p.Main.Ops {
			op.Uses(func(v *ir.Value) {
				if op.Phase == ir.Apply || v.Op.IsLeaf() {
					return
				}
				from, to := v.Op.TaskGraph.ID, op.TaskGraph.ID
				if v.Op.Phase == ir.Forward && from > to || v.Op.Phase == ir.Backward && from < to {
					t.Errorf("%s of stage %d reads %s of stage %d", op, to, v, from)
				}
			})
		}
		for _, g := range p.Gradients {
			if home := g.Variable.TaskGraph; home == nil || g.Variable.Update.Op.TaskGraph != home {
				t.Errorf("%s is in %s, its update in %s", g.Variable.Path, home.Title(), g.Variable.Update.Op.TaskGraph.Title())
			}
		}
	}
}

func TestCheapOpsMoveToWhoReadsThem(t *testing.T) {
	w := newWriter(4096)
	x, labels := w.input(), w.input()
	late := w.forward(&ir.Add{}, labels, labels) // read at the end only
	for range 4 {
		x = w.forward(&ir.Mul{}, x, w.variable())
	}
	dead := w.op(ir.Forward, &ir.Tanh{}, w.shape(), x)
	p := w.train(w.forward(&ir.Sub{}, x, late))
	stages(t, p, 2, slow, fast)
	if late.Op.TaskGraph.ID != 1 {
		t.Error("what is made of the labels is not computed where the loss is")
	}
	if dead.Op.TaskGraph == nil || dead.Op.TaskGraph.ID != 1 {
		t.Error("a dead op is not with what it reads")
	}
	for _, v := range p.Inputs {
		if v.Op.TaskGraph != nil {
			t.Errorf("input %s belongs to %s", v, v.Op.TaskGraph.Title())
		}
	}
}

func TestMetricsAfterTheOptimizerFollowWhatTheyRead(t *testing.T) {
	w := newWriter(64)
	x := w.input()
	var first *ir.Value
	for range 4 {
		x = w.forward(&ir.Mul{}, x, w.variable())
		if first == nil {
			first = x
		}
	}
	p := w.train(x)
	average := w.op(ir.Forward, &ir.Add{}, w.shape(), first, x)
	number := w.op(ir.Forward, &ir.Add{}, w.shape(), p.Inputs[0], p.Inputs[0])
	for _, v := range []*ir.Value{average, number} {
		p.Main.Outputs, p.Outputs = append(p.Main.Outputs, v), append(p.Outputs, ir.Output{})
	}
	stages(t, p, 2, slow, fast)
	for _, v := range []*ir.Value{average, number} {
		if v.Op.TaskGraph.ID != 1 {
			t.Errorf("%s is in %s", v.Op, v.Op.TaskGraph.Title())
		}
	}
}

func TestWhatCannotBeCutIsRefused(t *testing.T) {
	annotated := units(4)
	annotated.TaskGraphs[0].Implicit = false
	untrained := units(4)
	untrained.Gradients = nil
	for _, c := range []struct {
		p    *ir.Program
		n    int
		want string
	}{
		{units(4), 0, "set pipeline.num_stages to at least 1"},
		{units(4), 6, "cannot be cut into 6 stages: its forward part has 5 ops that compute something; set pipeline.num_stages to at most 5"},
		{annotated, 2, "internal error"},
		{untrained, 2, "internal error"},
	} {
		if _, err := StagesAlike(c.p, c.n, slow, fast); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d stages: %v, not %q", c.n, err, c.want)
		}
	}
}
