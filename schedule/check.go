package schedule

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Check plays the lists through without computing anything: every value is there when it is used and not after it was
// freed, every bucket is complete when it is merged, is merged once and waited for, and all devices merge the same
// buckets in the same order, without which they would wait for each other forever.
func (p *Program) Check() error {
	var first []int
	for d, l := range p.Devices {
		order, err := p.checkDevice(l)
		if err != nil {
			return errors.WithMessagef(err, "epl: internal error: schedule %q, device %d", p.Name, d)
		}
		if d == 0 {
			first = order
		} else if !slices.Equal(order, first) {
			return errors.Errorf("epl: internal error: schedule %q: devices 0 and %d merge buckets in different orders, %v and %v", p.Name, d, first, order)
		}
	}
	return nil
}

type place struct {
	v     *ir.Value
	micro int
}

func (p *Program) checkDevice(l []Instr) (merges []int, err error) {
	have := map[place]bool{}
	state := make([]Kind, len(p.Buckets)) // Run: nothing yet; Merge: started; Wait: done
	parts := make([]int, len(p.Buckets))  // micro-batches accumulated
	for i, in := range l {
		switch in.Kind {
		case Run:
			s := p.Segments[in.Segment]
			for _, v := range s.Inputs {
				if !v.Op.IsLeaf() && !have[place{v, in.Micro}] {
					return nil, errors.Errorf("instruction %d: segment %s needs %s, which is not there", i, s.Name, v)
				}
			}
			for _, v := range s.Outputs {
				have[place{v, in.Micro}] = true
			}
		case Accumulate:
			for _, m := range p.Buckets[in.Bucket].Merges {
				if v := m.Inputs[0]; !v.Op.IsLeaf() && !have[place{v, in.Micro}] {
					return nil, errors.Errorf("instruction %d: %s is not there to be accumulated", i, v)
				}
			}
			parts[in.Bucket]++
		case Merge:
			want := 0
			if p.Local.MicroBatches > 1 {
				want = p.Local.MicroBatches
			}
			if state[in.Bucket] != Run || parts[in.Bucket] != want {
				return nil, errors.Errorf("instruction %d: bucket %d is merged twice, or with %d of %d micro-batches", i, in.Bucket, parts[in.Bucket], want)
			}
			state[in.Bucket] = Merge
			merges = append(merges, in.Bucket)
		case Wait:
			if state[in.Bucket] != Merge {
				return nil, errors.Errorf("instruction %d: bucket %d is waited for but not being merged", i, in.Bucket)
			}
			state[in.Bucket] = Wait
			for _, m := range p.Buckets[in.Bucket].Merges {
				have[place{m.Outputs[0], Once}] = true
			}
		}
		for _, v := range in.Frees {
			if !have[place{v, in.Micro}] {
				return nil, errors.Errorf("instruction %d: %s is freed but not there", i, v)
			}
			delete(have, place{v, in.Micro})
		}
	}
	for i, s := range state {
		if s != Wait {
			return nil, errors.Errorf("bucket %d is never merged, or not waited for", i)
		}
	}
	return merges, nil
}
