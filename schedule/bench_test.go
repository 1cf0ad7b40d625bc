package schedule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// pipelineOfSplits is a program of stages that are each split over devices: in every layer a device multiplies with its own
// weight, and the devices of the stage all-reduce, forward and backward.
func pipelineOfSplits(t testing.TB, stages, devices, layers, micro int) *ir.Program {
	t.Helper()
	var head, vars, params, ops, apply, updates strings.Builder
	fmt.Fprintf(&head, "program \"splits\"\ninstances 1 %d\n", micro)
	n := 1
	op := func(w *strings.Builder, what, shape, phase string, stage, device int) string {
		v := fmt.Sprintf("%%%d", n)
		n++
		fmt.Fprintf(w, "  %s = %s -> %s : %s taskgraph %d place %d\n", v, what, shape, phase, stage, stage*devices+device)
		return v
	}
	const shape = "float32[64]"
	allReduce := func(in []string, phase string, stage int) (out []string) {
		var places []string
		for d := range devices {
			places = append(places, fmt.Sprint(stage*devices+d))
		}
		v := op(&ops, fmt.Sprintf("Exchange(%s) {How: \"all-reduce\", Reduce: \"sum\", Places: [%s]}", strings.Join(in, ", "), strings.Join(places, ", ")),
			strings.Join(strings.Split(strings.Repeat(shape+" ", devices-1)+shape, " "), ", "), phase, stage, 0)
		for d := range devices {
			out = append(out, fmt.Sprintf("%s.%d", v, d))
		}
		out[0] = v
		return out
	}
	type layer struct{ weights, in []string }
	var all []layer
	x := strings.Fields(strings.Repeat("%0 ", devices))
	for s := range stages {
		fmt.Fprintf(&head, "taskgraph %d \"stage %d\" replicate(%d)\n", s, s, devices)
		for range layers {
			l := layer{in: x}
			var h []string
			for d := range devices {
				name := fmt.Sprintf("/w%d", n)
				w := op(&params, fmt.Sprintf("Parameter() {Name: %q, Shape: %s}", name, shape), shape, "forward", s, d)
				l.weights = append(l.weights, w)
				h = append(h, op(&ops, fmt.Sprintf("Mul(%s, %s)", x[d], w), shape, "forward varying", s, d))
			}
			x = allReduce(h, "forward varying", s)
			all = append(all, l)
		}
	}
	last := stages - 1
	loss := op(&ops, fmt.Sprintf("ReduceSum(%s)", x[0]), "float32[]", "forward varying", last, 0)
	var g []string
	for d := range devices {
		g = append(g, op(&ops, fmt.Sprintf("Exp(%s)", x[d]), shape, "backward varying", last, d))
	}
	var returns []string
	for i := len(all) - 1; i >= 0; i-- {
		s := i / layers
		var h []string
		for d, w := range all[i].weights {
			gw := op(&ops, fmt.Sprintf("Mul(%s, %s)", g[d], all[i].in[d]), shape, "backward varying", s, d)
			h = append(h, op(&ops, fmt.Sprintf("Mul(%s, %s)", g[d], w), shape, "backward varying", s, d))
			merged := op(&ops, fmt.Sprintf("Merge(%s) {How: \"mean\"}", gw), shape, "backward", s, d)
			update := op(&apply, fmt.Sprintf("Sub(%s, %s)", w, merged), shape, "apply", s, d)
			fmt.Fprintf(&vars, "variable \"/v%s\" %s trainable update %s taskgraph %d\n", w[1:], w, update, s)
			fmt.Fprintf(&updates, " update %s", w)
			returns = append(returns, update)
		}
		if i > 0 {
			g = allReduce(h, "backward varying", s)
		}
	}
	returns = append(returns, op(&apply, fmt.Sprintf("Merge(%s) {How: \"mean\"}", loss), "float32[]", "forward", last, 0))
	for s := range stages {
		fmt.Fprintf(&head, "stage taskgraph %d", s)
		for d := range devices {
			fmt.Fprintf(&head, " place %d", s*devices+d)
		}
		head.WriteString("\n")
	}
	text := head.String() + vars.String() + "input %0\nloss " + loss + "\noutputs" + updates.String() + " result\nmain {\n" +
		"  %0 = Parameter() {Name: \"arg0\", Shape: " + shape + "} -> " + shape + " : forward varying taskgraph 0\n" +
		params.String() + ops.String() + apply.String() + "  return " + strings.Join(returns, ", ") + "\n}"
	p, err := ir.Parse(text)
	if err == nil {
		err = p.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func BenchmarkPipelineOfSplits(b *testing.B) {
	for _, devices := range []int{2, 8, 32} {
		p := pipelineOfSplits(b, 4, devices, 6, 8)
		ranks := make([]int, p.NumPlaces())
		for i := range ranks {
			ranks[i] = i
		}
		build := func() *Program {
			s, err := Build(p, Options{MaxSplits: 5, Ranks: [][]int{ranks}})
			if err != nil {
				b.Fatal(err)
			}
			return s
		}
		s := build()
		b.Run(fmt.Sprintf("build/%d", devices), func(b *testing.B) {
			for b.Loop() {
				build()
			}
		})
		b.Run(fmt.Sprintf("check/%d", devices), func(b *testing.B) {
			for b.Loop() {
				if err := s.Check(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("account/%d", devices), func(b *testing.B) {
			for b.Loop() {
				s.Account(p, Traffic{}, nil)
			}
		})
	}
}
