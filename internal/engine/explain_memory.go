package engine

import (
	"slices"
	"strings"

	"github.com/easyparallel/epl/schedule"
)

// writeMemory prints the account of a training step. Places that need the same stand in one row.
func (r *report) writeMemory(w *strings.Builder) {
	if r.Account == nil || r.Kind != "training step" {
		return
	}
	w.WriteString("\n  memory of a device in a step, predicted: what lives when most does\n")
	uses := slices.DeleteFunc(schedule.Uses(), func(u schedule.Use) bool {
		return !slices.ContainsFunc(r.Account.Places, func(x schedule.PlaceAccount) bool { return x.Peak[u] != 0 })
	})
	t := table{head: []string{"devices of a replica", ">bytes"}}
	for _, u := range uses {
		t.head = append(t.head, ">"+u.String())
	}
	t.head = append(t.head, "when")
	same := map[schedule.PlaceAccount][]int{}
	var rows []schedule.PlaceAccount
	for place, x := range r.Account.Places {
		key := x
		key.At, key.Most = 0, schedule.Bytes{}
		if len(r.Account.Places) > maxVariables { // as many rows would be hard to read
			key.Text = ""
		}
		if same[key] == nil {
			rows = append(rows, key)
		}
		same[key] = append(same[key], place)
	}
	for _, x := range rows {
		cells := []string{placesText(same[x]), bytesText(x.Peak.Total())}
		for _, u := range uses {
			cells = append(cells, bytesText(x.Peak[u]))
		}
		t.row(append(cells, peakText(x))...)
	}
	t.write(w, "    ")
}
