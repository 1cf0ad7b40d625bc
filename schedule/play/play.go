// Package play is the player of lists that wait for each other, with observers.
//
// What goes in is how many steps each list has, and for every step which events it needs and which it tells.
// What comes out is an order in which observers see the steps: those of a list one after the other, each when the events that it
// needs have happened; and where lists wait forever. It assumes nothing of what a list stands for: the lists of a
// schedule.Program and the tasks of a pipeline are played alike. The work is linear in the steps and their events.
package play

// Step is what a step of a list has to do with other lists.
type Step[E comparable] struct {
	Arrives []E // happen when the list comes to the step
	Needs   []E // have happened before it is done,
	Times   int // each so many times, for all who need it; 0: once
	Tells   []E // happen when it is done
}

func (s *Step[E]) times() int { return max(s.Times, 1) }

// Observer watches. After an error nothing more is played.
type Observer[E comparable] interface {
	// Arrive sees that a list comes to a step, where it may have to wait.
	Arrive(list, at int, s Step[E]) error
	// Do sees that a step is done. What it tells happens after that.
	Do(list, at int, s Step[E]) error
}

// Stop is where a list did not go on.
type Stop[E comparable] struct {
	List, At int
	For      E // the event that does not happen, if there was no error
}

// Play plays lists of so many steps each. Step is called once for every step, when its list comes to it. It returns the lists
// that wait forever, or the first error of an observer and where that was.
func Play[E comparable](lengths []int, step func(list, at int) Step[E], observers ...Observer[E]) (stops []Stop[E], err error) {
	type state struct {
		at    int
		step  Step[E]
		there bool // it has come to the step
		lacks E    // what it waits for
	}
	lists := make([]state, len(lengths))
	happened, waiting := map[E]int{}, map[E][]int{}
	ready := make([]int, len(lengths))
	for i := range ready {
		ready[i] = i
	}
	happen := func(events []E) {
		for _, e := range events {
			happened[e]++
			if w := waiting[e]; len(w) > 0 && happened[e] >= lists[w[0]].step.times() {
				ready = append(ready, w...)
				delete(waiting, e)
			}
		}
	}
	for len(ready) > 0 {
		list := ready[0]
		ready = ready[1:]
		l := &lists[list]
	steps:
		for ; l.at < lengths[list]; l.at++ {
			if !l.there {
				l.step, l.there = step(list, l.at), true
				for _, o := range observers {
					if err := o.Arrive(list, l.at, l.step); err != nil {
						return []Stop[E]{{List: list, At: l.at}}, err
					}
				}
				happen(l.step.Arrives)
			}
			for _, e := range l.step.Needs {
				if happened[e] < l.step.times() {
					l.lacks = e
					waiting[e] = append(waiting[e], list)
					break steps
				}
			}
			for _, o := range observers {
				if err := o.Do(list, l.at, l.step); err != nil {
					return []Stop[E]{{List: list, At: l.at}}, err
				}
			}
			happen(l.step.Tells)
			l.there = false
		}
	}
	for i, l := range lists {
		if l.at < lengths[i] {
			stops = append(stops, Stop[E]{i, l.at, l.lacks})
		}
	}
	return stops, nil
}
