package runtime

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
)

// Job is what a worker knows of the others. A worker that is alone has none.
type Job struct {
	World   *comm.World
	Worker  int   // this one
	Devices []int // of each worker; ranks count through them
	// Sliced: every worker has a stream of batches of its own. Else all read the same one.
	Sliced bool
	// Offer lets the other workers read data of this one, until it is withdrawn; Fetch reads what another offers.
	Offer func(name string, version uint64, read func() (data []byte, release func(), err error)) (withdraw func())
	// Sharing is told that workers read each other's variables.
	Sharing func()
	Fetch   func(worker int, name string, version uint64, dst []byte) error
	// Reading is told when a variable is copied to the host, which others may have to wait for; nil: nobody cares.
	Reading func()

	leader  *comm.Communicator // of this worker's first rank, among those of all workers
	dealing *comm.Communicator // the same, for datasets
}

// NewJob makes a job of the workers of a world.
func NewJob(w *comm.World, worker int, devices []int, sliced bool) (*Job, error) {
	j := &Job{World: w, Worker: worker, Devices: devices, Sliced: sliced}
	group, err := w.Group(j.Firsts())
	if err != nil {
		return nil, err
	}
	if j.leader, err = group.Communicator(j.First(), 0); err != nil {
		return nil, err
	}
	j.dealing, err = group.Communicator(j.First(), 1)
	return j, err
}

// Firsts are the ranks of the workers' first devices.
func (j *Job) Firsts() (ranks []int) {
	at := 0
	for _, n := range j.Devices {
		ranks = append(ranks, at)
		at += n
	}
	return ranks
}

// First is the rank of this worker's first device.
func (j *Job) First() int { return j.Firsts()[j.Worker] }

// WorkerOf is the worker of a rank.
func (j *Job) WorkerOf(rank int) int {
	w := 0
	for rank >= j.Devices[w] {
		rank -= j.Devices[w]
		w++
	}
	return w
}

// gather collects a few numbers of every worker.
func (j *Job) gather(program string, mine ...int64) ([][]int64, error) {
	return j.gatherBy(j.leader, program, mine...)
}

func (j *Job) gatherBy(end *comm.Communicator, program string, mine ...int64) ([][]int64, error) {
	all := make([]int64, len(mine)*len(j.Devices))
	if err := end.Do(comm.Call{Op: comm.AllGather, In: mine, Out: all, Program: program}); err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(all, len(mine))), nil
}

// equalize gives all workers the first one's values of the buffers that any worker has not got from a step. All give as
// many buffers, in the same order; where there is nil nothing is done.
func (j *Job) equalize(program string, buffers []*Buffer) error {
	loose := make([]uint8, len(buffers))
	for i, b := range buffers {
		if b != nil && !b.isEqual() {
			loose[i] = 1
		}
	}
	if err := j.leader.Do(comm.Call{Op: comm.AllReduce, Buf: loose, Reduction: comm.Max, Program: program}); err != nil {
		return err
	}
	for i, b := range buffers {
		if loose[i] == 0 {
			continue
		}
		if b == nil {
			return errors.Errorf("epl: internal error: input %d of program %q is data here and a variable on another worker", i, program)
		}
		if err := j.broadcast(program, b); err != nil {
			return errors.WithMessagef(err, "input %d", i)
		}
	}
	return nil
}

// broadcast gives all workers the first one's value of a buffer.
func (j *Job) broadcast(program string, b *Buffer) error {
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
	if err := j.leader.Do(comm.Call{Op: comm.Broadcast, Buf: flat, Root: 0, Program: program}); err != nil {
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
	micro   int   // micro-batches
	mine    int   // this worker
	sliced  bool  // every worker has a stream
	feeders []int // by model replica: the worker that feeds it
	present []int // by stream: batches that there are for the step
}

func newDeal(x *Stepper) deal {
	d := deal{micro: x.schedule.Local.MicroBatches}
	if j := x.data.Job; j != nil {
		d.mine, d.sliced = j.Worker, j.Sliced
	}
	for r := range x.schedule.Ranks {
		d.feeders = append(d.feeders, x.feeder(r))
	}
	return d
}

// wanted is how many batches a full step takes from this worker's stream. A worker that feeds no model replica takes one,
// for its shape.
func (d *deal) wanted() int {
	if !d.sliced {
		return len(d.feeders) * d.micro
	}
	return max(d.fed(d.mine, len(d.feeders))*d.micro, 1)
}

// fed is how many of the first model replicas a worker feeds.
func (d *deal) fed(worker, first int) (n int) {
	for _, f := range d.feeders[:first] {
		if f == worker {
			n++
		}
	}
	return n
}

// batch returns where the batch of an instance is: its stream, and its number in the part of it that the step took.
func (d *deal) batch(replica, micro int) (stream, index int) {
	if !d.sliced {
		return 0, micro*len(d.feeders) + replica
	}
	stream = d.feeders[replica]
	return stream, micro*d.fed(stream, len(d.feeders)) + d.fed(stream, replica)
}

// exists tells whether the step has an instance: the last step of the data may lack some.
func (d *deal) exists(replica, micro int) bool {
	stream, index := d.batch(replica, micro)
	return index < d.present[stream]
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
