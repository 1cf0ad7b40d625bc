package runtime

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/schedule"
)

// remote is where another worker has a variable.
type remote struct {
	worker  int
	name    string
	version uint64
}

// fetch reads it, one-sided: the other worker goes on meanwhile, up to its next step.
func (x *remote) fetch(j *Job, shape shapes.Shape) (any, error) {
	flat := newFlat(shape)
	return flat, j.Fetch(x.worker, x.name, x.version, dtypes.UnsafeByteSliceFromAny(flat))
}

// share lets workers that have no device where a variable lives read it from those that have: all know of each other who
// that is.
func (s *step) share(b *Buffer, output int, home schedule.Variable) {
	if s.data.Job == nil {
		return
	}
	owner := -1
	has := map[int]bool{}
	for _, ranks := range s.schedule.Ranks {
		for _, place := range home.Places {
			w := s.workerOf(ranks[place])
			has[w] = true
			if owner < 0 {
				owner = w
			}
		}
	}
	if len(has) == len(s.data.Job.Devices) {
		return
	}
	s.data.Job.Sharing()
	name := fmt.Sprintf("output %d of training program %d", output, s.opts.Number) // paths of metrics differ between workers
	switch me := s.data.Job.Worker; {
	case me == owner:
		b.withdraw = s.data.Job.Offer(name, s.count, b.read)
	case !has[me]:
		b.remote = &remote{owner, name, s.count}
	}
}

// read lends the data to another worker.
func (b *Buffer) read() (data []byte, release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, nil, errGone
	}
	flat, err := b.host()
	if err != nil {
		return nil, nil, errors.WithMessage(err, "epl: a variable cannot be read")
	}
	return dtypes.UnsafeByteSliceFromAny(flat), func() {}, nil
}
