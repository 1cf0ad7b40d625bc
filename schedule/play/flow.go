package play

// Flow is an observer of what lists have at a time, and learn from each other: what a list had when it made an event happen
// comes to those that wait for it.
type Flow[E comparable, T any] struct {
	At   []T // by list
	told map[E]T
	join func(into *T, from T)
	pass func(list, at int, x *T) // what becomes of it by a step
}

// Clocks observe what lists can know of each other: how many steps of each are done, as far as a list knows.
func Clocks[E comparable](lists int) *Flow[E, []int] {
	f := &Flow[E, []int]{told: map[E][]int{}, join: func(into *[]int, from []int) {
		if *into == nil {
			*into = make([]int, lists)
		}
		for i, n := range from {
			(*into)[i] = max((*into)[i], n)
		}
	}, pass: func(list, at int, known *[]int) { (*known)[list] = at + 1 }}
	for range lists {
		f.At = append(f.At, make([]int, lists))
	}
	return f
}

// Times observe how long lists take, if a step takes so long and what is told is known at once.
func Times[E comparable](lists int, takes func(list, at int) float64) *Flow[E, float64] {
	return &Flow[E, float64]{At: make([]float64, lists), told: map[E]float64{},
		join: func(into *float64, from float64) { *into = max(*into, from) },
		pass: func(list, at int, now *float64) { *now += takes(list, at) }}
}

// Arrive lets the events of the step have what the list has.
func (f *Flow[E, T]) Arrive(list, _ int, s Step[E]) error {
	f.tell(list, s.Arrives)
	return nil
}

// Do lets the list learn, do the step, and tell.
func (f *Flow[E, T]) Do(list, at int, s Step[E]) error {
	for _, e := range s.Needs {
		f.join(&f.At[list], f.told[e])
	}
	f.pass(list, at, &f.At[list])
	f.tell(list, s.Tells)
	return nil
}

func (f *Flow[E, T]) tell(list int, events []E) {
	for _, e := range events {
		x := f.told[e]
		f.join(&x, f.At[list])
		f.told[e] = x
	}
}
