package comm

import "fmt"

// end is a rank's end of a communicator: its seat in the meeting of the worker's ranks.
type end struct {
	meeting *meeting
	seat    *seat
}

// meetingKey names a communicator.
type meetingKey struct {
	group   *Group
	channel int
}

// name returns the communicator as headers call it.
func (k meetingKey) name() string {
	if k.channel > 0 {
		return fmt.Sprintf("%s/%d", k.group.name, k.channel)
	}
	return k.group.name
}

// connect returns the end of a communicator that belongs to the local rank at a position of the group. The lock is held.
func (w *World) connect(key meetingKey, pos int) end {
	m := w.meetings[key]
	if m == nil {
		t := newTeam(w.base, key.group.ranks, key.name())
		var e engine
		if len(t.members) > 1 {
			e = w.newEngine(t)
		}
		m = newMeeting(t, e)
		w.meetings[key] = m
	}
	return end{m, m.seatOf(pos)}
}

// meetingNamed finds a communicator; nil if there is none.
func (w *World) meetingNamed(name string) *meeting {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, m := range w.meetings {
		if key.name() == name {
			return m
		}
	}
	return nil
}

// run makes a call.
func (e end) run(k *call) error {
	m := e.meeting
	switch {
	case !k.Op.pointToPoint():
		return m.collective(e.seat, k)
	case m.team.memberOf[k.peer] == m.team.me:
		return m.exchange(k)
	}
	return m.engine.exchange(k)
}
