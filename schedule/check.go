// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

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
	c := &checker{Program: p, have: make([]map[Slot]bool, len(p.Places)), sent: make([][]int, len(p.Transfers)), received: make([]int, len(p.Transfers)),
		state: make([]Kind, len(p.Buckets)), parts: make([]int, len(p.Buckets)), sums: map[Slot]int{}}
	for i, b := range p.Buckets {
		if b.Summed {
			vs, _ := b.Values()
			for _, at := range slotsOf(vs, Once) {
				c.sums[at] = i
			}
		}
	}
	for list := range c.have {
		c.have[list] = map[Slot]bool{}
	}
	p.residents(func(list int, at Slot) { c.have[list][at] = true })
	stops, err := play.Play(p.Places, events, func(list, at int) error {
		return errors.WithMessagef(c.do(list, p.Places[list][at]), "group %d, instruction %d", list, at)
	})
	if err == nil {
		err = c.end(stops)
	}
	return errors.WithMessagef(err, "epl: internal error: schedule %q", p.Name)
}

// checker is the observer that finds what is wrong.
type checker struct {
	*Program
	have     []map[Slot]bool // by list
	sent     [][]int         // by transfer: micro-batches
	received []int           // by transfer: how many of them
	state    []Kind          // by bucket. Run: nothing yet; Merge: started; Wait: done
	parts    []int           // by bucket: micro-batches accumulated, of each value if segments add them up
	sums     map[Slot]int    // that segments make, by bucket
}

// do finds what is used or freed and is not there, and what is done in the wrong order, or too often.
func (c *checker) do(list int, in Instr) error {
	have := c.have[list]
	for _, x := range c.Uses(in) {
		if !given(x.Value) && !have[x] {
			return errors.Errorf("%s needs %s, which is not there", c.Text(in), x.Value)
		}
	}
	switch in.Kind {
	case Send:
		if t := c.Transfers[in.Transfer]; t.From != list {
			return errors.Errorf("%s belongs to group %d", c.Text(in), t.From)
		}
		c.sent[in.Transfer] = append(c.sent[in.Transfer], in.Micro)
	case Receive, Feed:
		if in.Transfer < 0 {
			break
		}
		n, sent := c.received[in.Transfer], c.sent[in.Transfer]
		switch to := c.Transfers[in.Transfer].To; {
		case to != list:
			return errors.Errorf("%s belongs to group %d", c.Text(in), to)
		case n == len(sent):
			return errors.Errorf("%s twice", c.Text(in))
		case sent[n] != in.Micro:
			return errors.Errorf("%s, but micro-batch %d was sent first", c.Text(in), sent[n])
		}
		c.received[in.Transfer]++
	case Load, Exchange:
		if have[c.Makes(in)[0]] {
			return errors.Errorf("%s, but what comes of it is there", c.Text(in))
		}
	case Accumulate:
		c.parts[in.Bucket]++
	case Merge:
		want := 0 // micro-batches before
		if c.Buckets[in.Bucket].Parts {
			want = in.Micro
		} else if c.Local.MicroBatches > 1 {
			want = c.Local.MicroBatches
		}
		if b := c.Buckets[in.Bucket]; b.Summed {
			want *= len(b.Merges)
		}
		if c.state[in.Bucket] != Run || c.parts[in.Bucket] != want {
			return errors.Errorf("bucket %d is merged twice, or with %d of %d micro-batches", in.Bucket, c.parts[in.Bucket], want)
		}
		c.state[in.Bucket] = Merge
		c.parts[in.Bucket]++
	case Wait:
		want, parts := Merge, c.Buckets[in.Bucket].Parts
		if parts && in.Micro == Once {
			want = Wait // all places have theirs, and add them up
		}
		if c.state[in.Bucket] != want {
			return errors.Errorf("bucket %d is waited for but not being merged", in.Bucket)
		}
		c.state[in.Bucket] = Wait
		if parts && in.Micro != Once && in.Micro < c.Local.MicroBatches-1 {
			c.state[in.Bucket] = Run
		}
	}
	if in.Kind == Run {
		if err := c.replaces(have, in); err != nil {
			return err
		}
	}
	for _, x := range c.Makes(in) {
		have[x] = true
	}
	for _, x := range in.Dies() {
		if !have[x] {
			return errors.Errorf("%s frees %s, which is not there", c.Text(in), x.Value)
		}
		delete(have, x)
	}
	return nil
}

// replaces finds sums that a segment takes and gives, of which it does not free what it takes. It counts what they are of.
func (c *checker) replaces(have map[Slot]bool, in Instr) error {
	for _, x := range in.Frees {
		if _, ok := c.sums[x]; ok {
			if !have[x] {
				return errors.Errorf("%s frees %s, which is not there", c.Text(in), x.Value)
			}
			delete(have, x)
		}
	}
	for _, x := range c.Gives(in) {
		bucket, ok := c.sums[x]
		if ok && have[x] {
			return errors.Errorf("%s: nobody frees %s after it", c.Text(in), x.Value)
		}
		if ok {
			c.parts[bucket]++
		}
	}
	return nil
}

// end tells whether all came to their end, and left nothing undone.
func (c *checker) end(stops []play.Stop[event]) error {
	for _, x := range stops {
		return errors.Errorf("group %d waits forever at instruction %d, %s", x.List, x.At, c.Text(c.Places[x.List][x.At]))
	}
	for i, b := range c.Buckets {
		if c.state[i] != Wait && !b.Inside {
			return errors.Errorf("bucket %d is never merged, or not waited for", i)
		}
	}
	for i, t := range c.Transfers {
		if n := c.received[i]; n != len(c.sent[i]) {
			return errors.Errorf("%s is sent %d times from group %d to %d and received %d times", t.Value, len(c.sent[i]), t.From, t.To, n)
		}
	}
	for at := range c.stays() {
		delete(c.have[at.list], at.Slot)
	}
	for list, left := range c.have { // variables that nobody uses there, or more
		if len(left) == 0 {
			continue
		}
		for i, in := range slices.Backward(c.Places[list]) {
			for _, x := range slices.Concat(c.Uses(in), c.Makes(in)) {
				if left[x] {
					return errors.Errorf("group %d, instruction %d, %s: nobody frees %s after it", list, i, c.Text(in), x.Value)
				}
			}
		}
	}
	return nil
}
