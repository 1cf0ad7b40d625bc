package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/schedule"
)

// writeMemory prints the account of a training step. Places that need the same stand in one row; what is hardly anything
// has no column.
func (r *report) writeMemory(w *strings.Builder) {
	if r.Account == nil || r.Kind != "training step" {
		return
	}
	uses := slices.DeleteFunc(schedule.Uses(), func(u schedule.Use) bool {
		return !slices.ContainsFunc(r.Account.Places, func(x schedule.PlaceAccount) bool { return x.Peak[u]*100 > x.Peak.Total() })
	})
	t := table{head: []string{"devices of a replica", ">bytes"}}
	for _, u := range uses {
		t.head = append(t.head, ">"+u.String())
	}
	t.head = append(t.head, "when")
	for _, places := range alike(r.Account) {
		x := r.Account.Places[places[0]]
		cells := []any{placesText(r.Schedule.Devices(places...)), x.Peak.Total()}
		for _, u := range uses {
			cells = append(cells, x.Peak[u])
		}
		t.row(append(cells, x.Text)...)
	}
	t.section(w, "memory of a device, predicted: what lives at the peak")
	if r.Measured == nil && r.Hardware.Processors() {
		sentences(w, "counted op by op, in the order of the program: XLA fuses ops, and says what it needs when it compiles")
	}
	r.writeMeasured(w)
}

// writeMeasured compares the account with what devices plan for the program now that it is compiled.
func (r *report) writeMeasured(w *strings.Builder) {
	if r.Measured == nil {
		return
	}
	t := table{head: []string{"devices of a replica", ">predicted", ">compiled", ">difference", "when"}}
	for _, places := range alike(r.Measured) {
		x, predicted := r.Measured.Places[places[0]], r.Account.Places[places[0]].Peak.Total()
		n := x.Peak.Total()
		t.row(placesText(r.Schedule.Devices(places...)), predicted, n, fmt.Sprintf("%+.1f %%", 100*float64(n-predicted)/float64(max(predicted, 1))), x.Text)
	}
	t.section(w, "memory of a device, as its modules were compiled")
}

// Counted is the account that is nearest to what really happens.
func (c *Program) Counted() *schedule.Account {
	if c.Measured != nil {
		return c.Measured
	}
	return c.Account
}

// alike are the places that need the same, in order.
func alike(a *schedule.Account) [][]int {
	places := make([]int, len(a.Places))
	for i := range places {
		places[i] = i
	}
	return grouped(places, func(place int) schedule.Bytes { return a.Places[place].Peak })
}

// Needs says what the device needs that needs most, and what for. limit is what it has, as far as known, and of says by what.
func (c *Program) Needs(limit int64, of string) string {
	account, by := c.Counted(), "by EPL's account"
	if c.Measured != nil {
		by = "as its modules were compiled"
	}
	place := account.Worst()
	x := account.Places[place]
	rank := 0
	if c.Schedule != nil {
		rank = c.Schedule.Ranks[0][c.Schedule.Groups[place][0]]
	}
	var w strings.Builder
	fmt.Fprintf(&w, "device %d needs %s", rank, bytesText(x.Peak.Total()))
	if limit > 0 {
		fmt.Fprintf(&w, " and has %s (%s)", bytesText(limit), of)
		if missing := x.Peak.Total() - limit; c.Measured != nil && missing > 0 {
			fmt.Fprintf(&w, ": %s are missing", bytesText(missing))
		}
	}
	fmt.Fprintf(&w, ", %s, at %s:\n", by, x.Text)
	t := table{head: []string{"for", ">bytes"}}
	uses := schedule.Uses()
	slices.SortStableFunc(uses, func(a, b schedule.Use) int { return cmp.Compare(x.Peak[b], x.Peak[a]) })
	for _, u := range uses {
		if x.Peak[u] > 0 {
			t.row(u, x.Peak[u])
		}
	}
	t.write(&w, "  ")
	return strings.TrimSuffix(w.String(), "\n")
}

// Advice says what would help a program that needs too much memory.
func Advice(all []plan.Suggestion, limit int64) string {
	var w strings.Builder
	if len(all) > 0 {
		w.WriteString("what would help, and the most that a device would need then:\n")
		t := table{head: []string{"setting", ">bytes", ""}}
		for _, s := range all {
			fits := ""
			if limit > 0 && s.Peak <= limit {
				fits = "fits"
			}
			t.row(strings.Join(s.Settings, " "), s.Peak, fits)
		}
		t.write(&w, "  ")
		w.WriteString("or ")
	}
	w.WriteString("use a smaller micro-batch, or more devices: as stages of a pipeline, or by epl.Split")
	return w.String()
}

// Offloaded says what is kept on the host.
func Offloaded(s *schedule.Program) string {
	n, bytes := 0, int64(0)
	for _, x := range s.Variables {
		if x.Host {
			n++
			bytes += x.Param.Shape.ByteSize()
		}
	}
	return fmt.Sprintf("offload.level=v0: %s of %s are in the memory of the host, and come to the devices a segment before they are used",
		words.Count(n, "variable"), bytesText(bytes))
}
