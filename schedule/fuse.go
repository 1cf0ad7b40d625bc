package schedule

import (
	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
)

// fuse groups merges into at most maxSplits buckets per dtype. It keeps their order and never mixes dtypes: a bucket
// is closed as soon as it holds its share of the bytes.
func fuse(merges []*ir.Op, maxSplits int) [][]*ir.Op {
	total := map[dtypes.DType]int64{}
	size := func(m *ir.Op) int64 { return max(m.Inputs[0].Bytes(), 1) }
	kind := func(m *ir.Op) dtypes.DType { return m.Inputs[0].Shape.DType }
	for _, m := range merges {
		total[kind(m)] += size(m)
	}
	var groups [][]*ir.Op
	open := map[dtypes.DType]int{} // index of the group that is being filled
	filled := map[dtypes.DType]int64{}
	for _, m := range merges {
		d := kind(m)
		i, ok := open[d]
		if !ok {
			i = len(groups)
			groups = append(groups, nil)
			open[d] = i
		}
		groups[i] = append(groups[i], m)
		if filled[d] += size(m); filled[d]*int64(maxSplits) >= total[d] {
			delete(open, d)
			filled[d] = 0
		}
	}
	return groups
}
