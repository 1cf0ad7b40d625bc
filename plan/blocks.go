package plan

import (
	"slices"

	"github.com/easyparallel/epl/ir/analysis"
)

// repeats finds the blocks that the chain repeats.
func (c *chain) repeats() []analysis.Run {
	return analysis.Line{Ops: c.ops, Time: c.time, Crossing: c.crossing()}.Blocks()
}

// crossing is how many bytes go from one side of each position to the other, both ways.
func (c *chain) crossing() []int64 {
	bytes := make([]int64, len(c.ops)+1)
	for _, s := range c.sends {
		lo, hi := min(s.from, s.to[0]), max(s.from, slices.Max(s.to))
		bytes[lo+1] += s.bytes
		if hi+1 < len(bytes) {
			bytes[hi+1] -= s.bytes
		}
	}
	for i := range bytes[1:] {
		bytes[i+1] += bytes[i]
	}
	return bytes
}

// betweenBlocks are the positions at which the chain may be cut without cutting a block.
func (c *chain) betweenBlocks(runs []analysis.Run) []bool {
	may := c.anywhere()
	for _, r := range runs {
		for i := r.Start; i < r.End(); i++ {
			may[i] = (i-r.Start)%r.Size == 0
		}
	}
	return may
}

func (c *chain) anywhere() []bool { return slices.Repeat([]bool{true}, len(c.ops)+1) }
