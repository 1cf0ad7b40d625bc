package passes

import (
	"github.com/easyparallel/epl/ir"
)

// ways maps collections to the way they merge. With one worker, local and global are the same.
var ways = []struct {
	key    string
	how    ir.How
	worker bool
}{
	{"GlobalMean", ir.Mean, false}, {"GlobalSum", ir.Sum, false}, {"GlobalConcat", ir.Concat, false},
	{"LocalMean", ir.Mean, true}, {"LocalSum", ir.Sum, true}, {"LocalConcat", ir.Concat, true},
}

// collected says in which collections values are, of those that say how instances are merged. That is part of what a value is: two
// that are computed alike but merged in different ways must not become one.
type collected map[*ir.Value]string

func waysOf(p *ir.Program) collected {
	c := collected{}
	for _, w := range ways {
		for _, v := range p.Collection(w.key) {
			c[v] += w.key + " "
		}
	}
	return c
}

// same tells whether the results of two ops with as many outputs are merged in the same ways.
func (c collected) same(a, b *ir.Op) bool {
	for i, v := range a.Outputs {
		if c[v] != c[b.Outputs[i]] {
			return false
		}
	}
	return true
}
