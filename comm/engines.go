package comm

import "slices"

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
		return newShmEngine(t)
	case len(hosts) == len(t.members):
		return newTCPEngine(t)
	}
	return newHybridEngine(t)
}

// hosts returns the members of a team by host, hosts in the order of their first member.
func (t *team) hosts() (all [][]int) {
	var names []string
	for m, who := range t.members {
		i := slices.Index(names, who.host)
		if i < 0 {
			i = len(names)
			names = append(names, who.host)
			all = append(all, nil)
		}
		all[i] = append(all[i], m)
	}
	return all
}
