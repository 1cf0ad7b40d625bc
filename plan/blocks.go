package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/easyparallel/epl/ir"
)

// minShare is the part of the program's time, in percent, below which a repetition is not worth looking at.
const minShare = 5

// run is a part of the chain that repeats: count blocks of size positions each.
type run struct{ start, size, count int }

func (r run) end() int { return r.start + r.size*r.count }

// repeats finds the blocks that the chain repeats, such as the layers of a transformer: the run that takes most of the
// time, and then others before and after it.
func (c *chain) repeats() []run {
	names := map[string]int{}
	word := make([]int, len(c.ops))
	for i, op := range c.ops {
		s := signature(op)
		if _, ok := names[s]; !ok {
			names[s] = len(names)
		}
		word[i] = names[s]
	}
	crossing := c.crossing()
	var found []run
	var find func(lo, hi int)
	find = func(lo, hi int) {
		r := c.longest(word, lo, hi)
		if r.count == 0 {
			return
		}
		r = align(r, word, hi, crossing)
		find(lo, r.start)
		found = append(found, r)
		find(r.end(), hi)
	}
	find(0, len(c.ops))
	return found
}

// signature is equal for ops that do the same to values of the same shapes.
func signature(op *ir.Op) string {
	var s strings.Builder
	s.WriteString(string(op.Type()))
	for _, list := range [][]*ir.Value{op.Inputs, op.Outputs} {
		for _, v := range list {
			if s.WriteByte(' '); v != nil {
				s.WriteString(ir.ShapeText(v.Shape))
			}
		}
		s.WriteByte(';')
	}
	return s.String()
}

// longest finds, between two positions, the repetition whose whole blocks take the most time; of several the one with
// the shortest blocks. Its count is 0 if there is none.
func (c *chain) longest(word []int, lo, hi int) (best run) {
	least := c.time[len(word)] * minShare / 100
	var most time.Duration
	for size := 1; size <= (hi-lo)/2; size++ {
		for i := lo; i+size < hi; {
			if word[i] != word[i+size] {
				i++
				continue
			}
			start := i
			for i+size < hi && word[i] == word[i+size] {
				i++
			}
			r := run{start, size, (i + size - start) / size}
			if r.count < 2 {
				continue
			}
			if t := c.time[r.end()] - c.time[start]; t >= least && t > most+most/1000 {
				best, most = r, t
			}
		}
	}
	return best
}

// align moves the borders of a run's blocks, without losing one, to where the least crosses them. A run is often longer
// than its blocks: what stands in front of the first looks like the end of one, say.
func align(r run, word []int, hi int, crossing []int64) run {
	best, least := r, int64(-1)
	for {
		var bytes int64
		for i := range r.count + 1 {
			bytes += crossing[r.start+i*r.size]
		}
		if least < 0 || bytes <= least {
			best, least = r, bytes
		}
		if r.end() >= hi || word[r.end()] != word[r.end()-r.size] {
			return best
		}
		r.start++
	}
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
func (c *chain) betweenBlocks(runs []run) []bool {
	may := c.anywhere()
	for _, r := range runs {
		for i := r.start; i < r.end(); i++ {
			may[i] = (i-r.start)%r.size == 0
		}
	}
	return may
}

func (c *chain) anywhere() []bool { return slices.Repeat([]bool{true}, len(c.ops)+1) }
