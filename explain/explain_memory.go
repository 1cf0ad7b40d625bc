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
	t.section(w, "memory of a device, predicted: what lives when most does")
}

// alike are the places that need the same, in order.
func alike(a *schedule.Account) [][]int {
	places := make([]int, len(a.Places))
	for i := range places {
		places[i] = i
	}
	return grouped(places, func(place int) schedule.Bytes { return a.Places[place].Peak })
}

// Needs says what the device needs that needs most, and what for.
func (c *Program) Needs(limit int64) string {
	place := c.Account.Worst()
	x := c.Account.Places[place]
	rank := 0
	if c.Schedule != nil {
		rank = c.Schedule.Ranks[0][c.Schedule.Groups[place][0]]
	}
	var w strings.Builder
	fmt.Fprintf(&w, "device %d needs %s", rank, bytesText(x.Peak.Total()))
	if limit > 0 {
		fmt.Fprintf(&w, " and has %s (cluster.device_memory)", bytesText(limit))
	}
	fmt.Fprintf(&w, ", by EPL's account, at %s:\n", x.Text)
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
