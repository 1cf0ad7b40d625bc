package engine

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/ir"
)

func (c *Compiled) explain(w *strings.Builder, number int) {
	p := c.Recorded
	kind := "no gradients marked by epl.Optimizer"
	if p.IsTraining() {
		kind = fmt.Sprintf("training, %d gradients", len(p.Gradients))
	}
	fmt.Fprintf(w, "program %d %q: %s, %d ops, %d inputs, %d variables, %d outputs\n",
		number, p.Name, kind, p.NumOps(), len(p.Inputs), len(p.Variables), len(p.Outputs))
	c.explainTaskGraphs(w)
	c.explainVariables(w)
	for _, l := range p.Collections {
		fmt.Fprintf(w, "  collection %s:", l.Key)
		for _, v := range l.Values {
			fmt.Fprintf(w, " %s %s", v, ir.ShapeText(v.Shape))
		}
		w.WriteString("\n")
	}
	if c.Err != nil {
		fmt.Fprintf(w, "  refused: %s\n", c.Err)
		return
	}
	if c.Placement != nil {
		fmt.Fprintf(w, "  placement: %s, %s\n", count(c.Placement.Replicas, "model replica"), c.Placement)
	}
	if len(c.Steps) == 0 {
		w.WriteString("  passes: none; it runs op by op as GoMLX built it\n")
		return
	}
	w.WriteString("  passes:\n")
	t := table(w)
	for _, s := range c.Steps {
		fmt.Fprintf(t, "    %s\t%s\t%d → %d ops\n", s.Pass, count(s.Changes, "change"), s.OpsBefore, s.OpsAfter)
	}
	t.Flush()
}

func (c *Compiled) explainTaskGraphs(w *strings.Builder) {
	p := c.Recorded
	type load struct {
		ops   [3]int
		vars  int
		bytes int64
	}
	loads := map[*ir.TaskGraph]*load{nil: {}}
	for _, t := range p.TaskGraphs {
		loads[t] = &load{}
	}
	for _, op := range p.Main.Ops {
		if !op.IsLeaf() {
			loads[op.TaskGraph].ops[op.Phase]++
		}
	}
	for _, v := range p.Variables {
		loads[v.TaskGraph].vars++
		loads[v.TaskGraph].bytes += byteSize(v.Param)
	}
	t := table(w)
	fmt.Fprintf(t, "    TaskGraph\tstrategy\tforward\tbackward\tapply\tvariables\tbytes\twhere\n")
	row := func(tg *ir.TaskGraph, name, strategy, where string) {
		l := loads[tg]
		fmt.Fprintf(t, "    %s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\n", name, strategy, l.ops[ir.Forward], l.ops[ir.Backward], l.ops[ir.Apply],
			l.vars, humanize.Bytes(l.bytes), where)
	}
	for _, tg := range p.TaskGraphs {
		where := string(tg.Source)
		switch {
		case tg.Implicit:
			where = "no annotation: all of it"
		case tg.Default:
			where = strings.TrimSpace("default " + where)
		}
		row(tg, tg.Title(), tg.Strategy(), where)
	}
	if *loads[nil] != (load{}) {
		row(nil, "outside", "-", "outside every scope, or shared")
	}
	t.Flush()
}

func (c *Compiled) explainVariables(w *strings.Builder) {
	p := c.Recorded
	if len(p.Variables) == 0 {
		return
	}
	grads := map[*ir.Variable]*ir.Value{}
	for _, g := range p.Gradients {
		grads[g.Variable] = g.Value
	}
	t := table(w)
	fmt.Fprintf(t, "    variable\tshape\tTaskGraph\tgradient\tnew value\n")
	for _, v := range p.Variables {
		update := "unchanged"
		switch {
		case v.Update != nil:
			update = v.Update.String()
		case !p.OutputsKnown:
			update = "unknown"
		}
		grad := "-"
		if g := grads[v]; g != nil {
			grad = g.String()
		}
		fmt.Fprintf(t, "    %s\t%s\t%s\t%s\t%s\n", v.Path, ir.ShapeText(v.Param.Shape), v.TaskGraph.Title(), grad, update)
	}
	t.Flush()
}

func byteSize(v *ir.Value) int64 {
	if v.Shape.IsDynamic() {
		return 0
	}
	return v.Shape.ByteSize()
}

func table(w *strings.Builder) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
