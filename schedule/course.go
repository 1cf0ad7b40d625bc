package schedule

import "github.com/easyparallel/epl/ir"

// Sample is what lives on a device at a moment of a step.
type Sample struct {
	At   int    // the instruction that is under way; -1: before the first, or the program runs as a whole
	Op   *ir.Op // the op that runs; nil: none does
	Live Bytes
}

// Course is how the account comes about: what lives on each place from the start of a step to its end. There is a sample
// for every op of a segment that runs, and one for what happens besides between two of them in an instruction, when most
// lives. The step is played again for it.
func (a *Account) Course() [][]Sample {
	var all [][]Sample
	for _, c := range a.again(true) {
		all = append(all, c.course)
	}
	return all
}

// sample keeps what lives now, and what is taken beyond that for a moment.
func (c *counter) sample(op *ir.Op, more Bytes) {
	if !c.keep {
		return
	}
	x := Sample{c.at, op, c.books.Live.Plus(more)}
	if last := len(c.course) - 1; last >= 0 && op == nil && c.course[last].Op == nil && c.course[last].At == c.at {
		if x.Live.Total() > c.course[last].Live.Total() {
			c.course[last] = x
		}
		return
	}
	c.course = append(c.course, x)
}
