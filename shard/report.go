package shard

import (
	"fmt"

	"github.com/easyparallel/epl/ir"
)

// Report is what [Partition] did that a user may want to know.
type Report struct {
	// Gathered are the operations that are computed on the whole batch by every device of their stage, in the order of the
	// program.
	Gathered []Gathered
	// Exchanges are those between the devices of stages, in one instance: how many there are of each collective, and the
	// bytes of the values.
	Exchanges map[ir.Collective]Exchanges
}

// Gathered is an operation that is computed on the whole batch.
type Gathered struct {
	Type   ir.OpType
	Ops    int       // how many there are
	Source ir.Source // the user's line of the first one
}

// Exchanges are collectives of one kind.
type Exchanges struct {
	Count int
	Bytes int64
}

// report looks at the partitioned program.
func report(p *ir.Program, gathered []*ir.Op) *Report {
	r := &Report{Exchanges: map[ir.Collective]Exchanges{}}
	at := map[ir.OpType]int{}
	for _, op := range gathered {
		i, seen := at[op.Type()]
		if !seen {
			i = len(r.Gathered)
			at[op.Type()] = i
			r.Gathered = append(r.Gathered, Gathered{Type: op.Type(), Source: op.Source})
		}
		r.Gathered[i].Ops++
	}
	for _, op := range p.Main.Ops {
		if a, ok := op.Attrs.(*ir.Exchange); ok {
			x := r.Exchanges[a.How]
			x.Count++
			x.Bytes += op.Outputs[0].Bytes()
			r.Exchanges[a.How] = x
		}
	}
	return r
}

// Lines describe the report for people.
func (r *Report) Lines() []string {
	var lines []string
	for _, how := range []ir.Collective{ir.AllReduceOf, ir.AllGatherOf} {
		if x := r.Exchanges[how]; x.Count > 0 {
			lines = append(lines, fmt.Sprintf("%d × %s between the devices of a stage, of %d bytes", x.Count, how, x.Bytes))
		}
	}
	for _, g := range r.Gathered {
		line := fmt.Sprintf("%s is computed on the gathered batch by every device (%d times", g.Type, g.Ops)
		if g.Source != "" {
			line += ", first at " + string(g.Source)
		}
		lines = append(lines, line+")")
	}
	return lines
}
