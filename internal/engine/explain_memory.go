package engine

import (
	"slices"
	"strings"

	"github.com/easyparallel/epl/schedule"
)

// writeMemory prints the account of a training step. Places that need the same stand in one row; what is hardly anything
// has no column.
func (r *report) writeMemory(w *strings.Builder) {
	if r.Account == nil || r.Kind != "training step" {
		return
	}
	w.WriteString("\n  memory of a device, predicted: what lives when most does\n")
	uses := slices.DeleteFunc(schedule.Uses(), func(u schedule.Use) bool {
		return !slices.ContainsFunc(r.Account.Places, func(x schedule.PlaceAccount) bool { return x.Peak[u]*100 > x.Peak.Total() })
	})
	t := table{head: []string{"devices of a replica", ">bytes"}}
	for _, u := range uses {
		t.head = append(t.head, ">"+u.String())
	}
	t.head = append(t.head, "when")
	same := map[schedule.Bytes][]int{}
	var rows []schedule.PlaceAccount
	for place, x := range r.Account.Places {
		if same[x.Peak] == nil {
			rows = append(rows, x)
		}
		same[x.Peak] = append(same[x.Peak], place)
	}
	for _, x := range rows {
		cells := []string{placesText(same[x.Peak]), bytesText(x.Peak.Total())}
		for _, u := range uses {
			cells = append(cells, bytesText(x.Peak[u]))
		}
		t.row(append(cells, x.Text)...)
	}
	t.write(w, "    ")
}
