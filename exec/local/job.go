// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/worker"
)

// gather collects a few numbers of every worker.
func gather(leaders *comm.Communicator, program string, mine ...int64) ([][]int64, error) {
	all := make([]int64, len(mine)*leaders.Size())
	if err := leaders.Do(comm.Call{Op: comm.AllGather, In: mine, Out: all, Program: program}); err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(all, len(mine))), nil
}

// equalize gives all workers the first one's values of the buffers that any worker has not got from a step. All give as
// many buffers, in the same order; where there is nil nothing is done.
func equalize(j *worker.Job, program string, buffers []*Buffer) error {
	loose := make([]uint8, len(buffers))
	for i, b := range buffers {
		if b != nil && !b.isEqual() {
			loose[i] = 1
		}
	}
	if err := j.Leaders.Do(comm.Call{Op: comm.AllReduce, Buf: loose, Reduction: comm.Max, Program: program}); err != nil {
		return err
	}
	for i, b := range buffers {
		if loose[i] == 0 {
			continue
		}
		if b == nil {
			return errors.Errorf("epl: internal error: input %d of program %q is data here and a variable on another worker", i, program)
		}
		if err := broadcast(j, program, b); err != nil {
			return errors.WithMessagef(err, "input %d", i)
		}
	}
	return nil
}

// broadcast gives all workers the first one's value of a buffer.
func broadcast(j *worker.Job, program string, b *Buffer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return errGone
	}
	var flat any
	var err error
	if j.Worker == 0 {
		if flat, err = b.host(); err != nil && b.pieces != nil {
			err = errors.WithMessage(err, "a variable that workers share was set on another worker than the first, which had a part of it; set it on all of them")
		}
	} else {
		flat = newFlat(b.shape)
	}
	if err != nil {
		return err
	}
	if err := j.Leaders.Do(comm.Call{Op: comm.Broadcast, Buf: flat, Root: 0, Program: program}); err != nil {
		return err
	}
	if j.Worker > 0 {
		if err := b.leave(flat); err != nil { // devices get it when they need it
			return err
		}
	}
	b.equal, b.remote = true, nil
	return nil
}

// deal says which instances a step has, and which batch is whose. Streams are those of the workers, or the one that all
// workers read: then there is one.
type deal struct {
	micro   int     // micro-batches of the model replica that has most
	mine    int     // this worker's stream
	feeders []int   // by model replica: its stream
	index   [][]int // by model replica and micro-batch: the number of the batch in the part of its stream that the step takes
	full    []int   // by stream: batches of a full step
	present []int   // by stream: batches that there are for the step
}

func newDeal(x *stepper) deal {
	feeders := make([]int, len(x.schedule.Ranks))
	if j := x.job; j != nil && j.Sliced && !x.opts.Forward {
		for r := range feeders {
			feeders[r] = x.feeder(r)
		}
		return dealTo(&x.schedule.Local, feeders, len(j.Devices), j.Worker)
	}
	return dealTo(&x.schedule.Local, feeders, 1, 0)
}

// dealTo deals the batches of streams to the model replicas that these feed.
func dealTo(local *ir.Local, feeders []int, streams, mine int) deal {
	d := deal{micro: local.MicroBatches, mine: mine, feeders: feeders, index: make([][]int, len(feeders)), full: make([]int, streams)}
	for m := range d.micro {
		for r, stream := range d.feeders {
			if m < local.Share(r) {
				d.index[r] = append(d.index[r], d.full[stream])
				d.full[stream]++
			}
		}
	}
	return d
}

// wanted is how many batches a full step takes from this worker's stream. A worker that feeds no model replica takes one,
// for its shape.
func (d *deal) wanted() int { return max(d.full[d.mine], 1) }

// exists tells whether the step has an instance: a model replica may have fewer than others, and the last step of the data may lack some.
func (d *deal) exists(replica, micro int) bool {
	return micro < len(d.index[replica]) && d.index[replica][micro] < d.present[d.feeders[replica]]
}

// total is the number of instances.
func (d *deal) total() (n int) {
	for replica := range d.feeders {
		for m := range d.micro {
			if d.exists(replica, m) {
				n++
			}
		}
	}
	return n
}

// any tells whether some model replica has a micro-batch.
func (d *deal) any(micro int) bool {
	for replica := range d.feeders {
		if d.exists(replica, micro) {
			return true
		}
	}
	return false
}
