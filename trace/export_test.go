package trace

// Note adds an event with times that a test chose.
func (s *Step) Note(e Event) { s.events = append(s.events, e) }
