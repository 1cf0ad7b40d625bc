package engine

import (
	"fmt"
	"strings"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// writeSchedule prints how a training step runs on several devices or micro-batches.
func (r *report) writeSchedule(w *strings.Builder) {
	s := r.Schedule
	if s == nil {
		return
	}
	w.WriteString("\n  a step\n")
	l := s.Local
	lines := []string{fmt.Sprintf("%s × %s = %s of the program per step; EPL merges what must be the same everywhere",
		count(l.Replicas, "model replica"), micros(l.MicroBatches), count(l.Instances(), "instance"))}
	instance := 0
	for _, x := range s.Segments {
		if x.Kind == schedule.Instance {
			instance++
		}
	}
	lines = append(lines, fmt.Sprintf("an instance runs in %s; what follows the merges runs once per step on every device", count(instance, "segment")))
	if instance > 1 {
		lines = append(lines, "while one bucket of gradients travels, backward computes the next")
	}
	for _, line := range lines {
		for _, part := range wrap(line, textWidth-4) {
			fmt.Fprintf(w, "    %s\n", part)
		}
	}
	t := table{head: []string{">bucket", "merged by", "what", ">values", ">bytes", "after"}}
	for i, b := range s.Buckets {
		t.row(fmt.Sprint(i), b.How.String(), bucketText(b), fmt.Sprint(len(b.Merges)), bytesText(b.Bytes()), s.Segments[b.After].Name)
	}
	t.write(w, "    ")
}

func micros(n int) string {
	if n == 1 {
		return "1 micro-batch"
	}
	return fmt.Sprintf("%d micro-batches", n)
}

func bucketText(b schedule.Bucket) string {
	if b.Merges[0].Phase == ir.Backward {
		if b.How == ir.Concat {
			return "rows or indices of a sparse gradient"
		}
		return "gradients"
	}
	if b.How == ir.First {
		return "state of the random number generator"
	}
	return "results and state"
}
