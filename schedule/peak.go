package schedule

import "github.com/easyparallel/epl/ir"

// Temporary is how many bytes a segment needs at most while it runs, beyond its inputs: its ops run in order, and a
// value dies after its last use.
func Temporary(s *ir.Segment) int64 {
	last := map[*ir.Value]int{}
	for i, op := range s.Ops {
		op.Uses(func(v *ir.Value) { last[v] = i })
	}
	for _, v := range s.Outputs {
		last[v] = len(s.Ops)
	}
	dies := make([][]*ir.Value, len(s.Ops)+1)
	var live, peak int64
	for i, op := range s.Ops {
		for _, v := range op.Outputs {
			live += v.Bytes()
			at, used := last[v]
			if !used {
				at = i
			}
			dies[at] = append(dies[at], v)
		}
		peak = max(peak, live)
		for _, v := range dies[i] {
			live -= v.Bytes()
		}
	}
	return peak
}
