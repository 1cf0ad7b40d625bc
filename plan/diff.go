package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gomlx/compute/support/humanize"
)

// Diff says what differs between two plans, and what that costs; "" if nothing does.
func Diff(a, b *Plan) string {
	var w strings.Builder
	names, x, y := joined(a.Facts(), b.Facts())
	table := tabwriter.NewWriter(&w, 0, 0, 2, ' ', 0)
	differ := false
	for _, name := range names {
		if x[name] != y[name] {
			differ = true
			fmt.Fprintf(table, "%s\t%s\t→ %s\n", name, shown(x[name], y[name]), shown(y[name], x[name]))
		}
	}
	_ = table.Flush() // a Builder takes all
	costs := diffCosts(a.Costs, b.Costs)
	if costs != "" {
		if differ {
			w.WriteString("\n")
		}
		w.WriteString("costs\n" + costs)
	}
	return w.String()
}

// joined are the names of facts of two plans, in their order, and the values of each.
func joined(a, b []Fact) (names []string, x, y map[string]string) {
	x, y = map[string]string{}, map[string]string{}
	for _, f := range a {
		names, x[f.Name] = append(names, f.Name), f.Value
	}
	after := 0 // where the next fact of b alone goes
	for _, f := range b {
		y[f.Name] = f.Value
		if i := slices.Index(names, f.Name); i >= 0 {
			after = i + 1
			continue
		}
		names = slices.Insert(names, after, f.Name)
		after++
	}
	return names, x, y
}

// shown is a value for people: "-" if there is none, and of a long one the part where it differs from another.
func shown(value, other string) string {
	const most, before = 60, 20
	if value == "" {
		return "-"
	}
	runes := []rune(value)
	if len(runes) <= most {
		return value
	}
	same := 0
	for o := []rune(other); same < len(runes) && same < len(o) && runes[same] == o[same]; {
		same++
	}
	start := ""
	if same > most-before {
		start, runes = "…", runes[same-before:]
	}
	if len(runes) > most {
		return start + string(runes[:most]) + "…"
	}
	return start + string(runes)
}

// diffCosts compares what steps take; "" if that is the same.
func diffCosts(a, b Costs) string {
	var w strings.Builder
	table := tabwriter.NewWriter(&w, 0, 0, 2, ' ', 0)
	row := func(what string, x, y int64, text func(int64) string) {
		if x == y {
			return
		}
		change := "new"
		switch {
		case y == 0:
			change = "gone"
		case x != 0:
			change = fmt.Sprintf("%+.1f%%", 100*(float64(y)/float64(x)-1))
		}
		fmt.Fprintf(table, "  %s\t%s\t→ %s\t%s\n", what, text(x), text(y), change)
	}
	bytes := func(n int64) string { return humanize.Bytes(n) }
	row("devices of a replica", int64(len(a.Devices)), int64(len(b.Devices)), func(n int64) string { return fmt.Sprint(n) })
	x, y := a.worst(), b.worst()
	row("memory of the device that needs most", x.Peak, y.Peak, bytes)
	uses := maps.Clone(x.Uses)
	maps.Copy(uses, y.Uses)
	for _, use := range slices.Sorted(maps.Keys(uses)) {
		row("  for "+use, x.Uses[use], y.Uses[use], bytes)
	}
	row("flops of a replica, a micro-batch", a.flops(), b.flops(), flopsText)
	for _, what := range []string{GradientsMerged, sentBetween, exchangedInStage, weightsGathered} {
		row("bytes "+what, a.traffic(what), b.traffic(what), bytes)
	}
	row("idle time, if stages take equally long", int64(1000*a.Idle+0.5), int64(1000*b.Idle+0.5),
		func(n int64) string { return fmt.Sprintf("%.1f%%", float64(n)/10) })
	_ = table.Flush()
	return w.String()
}

// worst is the device that needs the most memory.
func (c Costs) worst() DeviceCost {
	d := DeviceCost{Uses: map[string]int64{}}
	for _, x := range c.Devices {
		if x.Peak > d.Peak {
			d = x
		}
	}
	return d
}

func (c Costs) flops() (n int64) {
	for _, x := range c.Devices {
		n += x.ForwardFlops + x.BackwardFlops
	}
	return n
}

func (c Costs) traffic(what string) int64 {
	for _, t := range c.Traffic {
		if t.What == what {
			return t.Bytes
		}
	}
	return 0
}
