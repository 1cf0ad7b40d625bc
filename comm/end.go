package comm

import "runtime"

// NewInProcess returns a world of n ranks that are goroutines of this process. They lend each other their slices, so
// that nothing is copied on the way. The world has no goroutines of its own, except for calls that were started.
func NewInProcess(n int, opts Options) (*World, error) {
	w, err := newWorld(n, opts)
	if err != nil {
		return nil, err
	}
	w.fabric = &inprocFabric{world: w, procs: runtime.GOMAXPROCS(0), meetings: map[meetingKey]*meeting{}}
	return w, nil
}

// inprocFabric finds the place where the ranks of a communicator meet. It is guarded by the world's lock.
type inprocFabric struct {
	world    *World
	procs    int // GOMAXPROCS
	meetings map[meetingKey]*meeting
}

type meetingKey struct {
	group   *Group
	channel int
}

func (f *inprocFabric) connect(g *Group, channel, pos int) transport {
	key := meetingKey{g, channel}
	m := f.meetings[key]
	if m == nil {
		m = newMeeting(f, g)
		f.meetings[key] = m
	}
	return &inprocEnd{meeting: m, seat: m.seats[pos]}
}

// inprocEnd is a rank's end of a meeting.
type inprocEnd struct {
	meeting *meeting
	seat    *seat
}

func (e *inprocEnd) run(k *call) error {
	if k.Op.pointToPoint() {
		return e.meeting.exchange(k)
	}
	return e.meeting.collective(e.seat, k)
}

func (e *inprocEnd) fail(err error) { e.meeting.fail(err) }
