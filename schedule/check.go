package schedule

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/schedule/play"
)

// Check plays the lists of a model replica through without computing anything, until each is at its end, or all wait for each
// other. Every value is there when it is used and not after it was freed, every send has its receive in the same order, every
// bucket is complete when it is merged, is merged once and waited for, and all that does not stay is freed.
func (p *Program) Check() error {
	c := &checker{p: p, sent: make([][]int, len(p.Transfers)), received: make([]int, len(p.Transfers))}
	for range p.Places {
		c.lists = append(c.lists, checked{map[Slot]bool{}, map[int]Kind{}, map[int]int{}})
	}
	p.residents(func(list int, at Slot) { c.lists[list].have[at] = true })
	stops, err := p.play(c)
	if err != nil {
		return errors.WithMessagef(err, "epl: internal error: schedule %q, group %d, instruction %d", p.Name, stops[0].List, stops[0].At)
	}
	return errors.WithMessagef(c.end(stops), "epl: internal error: schedule %q", p.Name)
}

// checker is the observer that finds what is wrong.
type checker struct {
	p        *Program
	lists    []checked
	sent     [][]int // by transfer: micro-batches
	received []int   // by transfer
}

// checked is the state of one list.
type checked struct {
	have  map[Slot]bool
	state map[int]Kind // of buckets. Run: nothing yet; Merge: started; Wait: done
	parts map[int]int  // of buckets: micro-batches accumulated
}

// Arrive finds what is used or waited for, and is not there.
func (c *checker) Arrive(list, at int, _ play.Step[event]) error {
	in := c.p.Places[list][at]
	if in.Kind == Wait {
		want := Merge
		if c.p.Buckets[in.Bucket].Parts && in.Micro == Once {
			want = Wait // all places have theirs, and add them up
		}
		if c.lists[list].state[in.Bucket] != want {
			return errors.Errorf("bucket %d is waited for but not being merged", in.Bucket)
		}
	}
	for _, x := range c.p.uses(in) {
		if !given(x.Value) && !c.lists[list].have[x] {
			return errors.Errorf("%s needs %s, which is not there", c.p.Text(in), x.Value)
		}
	}
	return nil
}

// Do finds what is done in the wrong order, or too often, and what is freed and is not there.
func (c *checker) Do(list, at int, _ play.Step[event]) error {
	in, me := c.p.Places[list][at], &c.lists[list]
	switch in.Kind {
	case Send:
		if t := c.p.Transfers[in.Transfer]; t.From != list {
			return errors.Errorf("%s belongs to group %d", c.p.Text(in), t.From)
		}
		c.sent[in.Transfer] = append(c.sent[in.Transfer], in.Micro)
	case Receive, Feed:
		if in.Transfer < 0 {
			break
		}
		if next := c.sent[in.Transfer][c.received[in.Transfer]]; next != in.Micro {
			return errors.Errorf("%s, but micro-batch %d was sent first", c.p.Text(in), next)
		}
		c.received[in.Transfer]++
	case Load:
		if me.have[Slot{in.Value, Once}] {
			return errors.Errorf("%s, but it is there", c.p.Text(in))
		}
	case Exchange:
		if me.have[Slot{in.Op.Outputs[0], in.Micro}] {
			return errors.Errorf("%s, but what comes of it is there", c.p.Text(in))
		}
	case Accumulate:
		me.parts[in.Bucket]++
	case Merge:
		want := 0
		if c.p.Local.MicroBatches > 1 {
			want = c.p.Local.MicroBatches
		}
		if c.p.Buckets[in.Bucket].Parts {
			if me.parts[in.Bucket] != in.Micro {
				return errors.Errorf("micro-batch %d of bucket %d is merged after %d others", in.Micro, in.Bucket, me.parts[in.Bucket])
			}
			me.parts[in.Bucket]++
			want = me.parts[in.Bucket]
		}
		if me.state[in.Bucket] != Run || me.parts[in.Bucket] != want {
			return errors.Errorf("bucket %d is merged twice, or with %d of %d micro-batches", in.Bucket, me.parts[in.Bucket], want)
		}
		me.state[in.Bucket] = Merge
	case Wait:
		me.state[in.Bucket] = Wait
		if c.p.Buckets[in.Bucket].Parts && in.Micro != Once && in.Micro < c.p.Local.MicroBatches-1 {
			me.state[in.Bucket] = Run
		}
	}
	for _, x := range c.p.makes(in) {
		me.have[x] = true
	}
	for _, x := range in.Frees {
		if !me.have[x] {
			return errors.Errorf("%s frees %s, which is not there", c.p.Text(in), x.Value)
		}
		delete(me.have, x)
	}
	return nil
}

// end tells whether all came to their end, and left nothing undone.
func (c *checker) end(stops []play.Stop[event]) error {
	undone := map[int]int{}
	for i, b := range slices.Backward(c.p.Buckets) {
		if c.lists[b.Place].state[i] != Wait {
			undone[b.Place] = i
		}
	}
	for list := range c.lists {
		if len(stops) > 0 && stops[0].List == list {
			at := stops[0].At
			return errors.Errorf("group %d waits forever at instruction %d, %s", list, at, c.p.Text(c.p.Places[list][at]))
		}
		if i, ok := undone[list]; ok {
			return errors.Errorf("bucket %d is never merged, or not waited for", i)
		}
	}
	for i, t := range c.p.Transfers {
		if n := c.received[i]; n != len(c.sent[i]) {
			return errors.Errorf("%s is sent %d times from group %d to %d and received %d times", t.Value, len(c.sent[i]), t.From, t.To, n)
		}
	}
	for at := range c.p.stays() {
		delete(c.lists[at.list].have, at.Slot)
	}
	for list, l := range c.p.Places {
		left := c.lists[list].have // variables that nobody uses there, or more
		for i, in := range slices.Backward(l) {
			if len(left) == 0 {
				break
			}
			for _, x := range slices.Concat(c.p.uses(in), c.p.makes(in)) {
				if left[x] {
					return errors.Errorf("group %d, instruction %d, %s: nobody frees %s after it", list, i, c.p.Text(in), x.Value)
				}
			}
		}
	}
	return nil
}
