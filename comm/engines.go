package comm

// newEngine chooses how the workers of a team reach each other: by shared memory on one host, by connections between
// hosts, by both where there are several hosts with several workers each.
func (w *World) newEngine(t *team) engine {
	hosts := map[string]int{}
	for _, m := range t.members {
		hosts[m.host]++
	}
	switch {
	case w.mpi:
		return newMPIEngine(t)
	case len(hosts) == 1:
		return newShm(t)
	case len(hosts) == len(t.members):
		return newTCPEngine(t)
	}
	return newHybridEngine(t, newShm, newTCPEngine, newTCPEngineBetween)
}

// newShm lets workers of one host share memory, or use connections where they cannot.
func newShm(t *team) engine { return newShmEngine(t, newTCPEngine) }
