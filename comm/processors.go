package comm

import (
	"runtime"

	"github.com/easyparallel/epl/internal/cores"
)

// crowded tells whether the ranks of this host do not have a processor each, as far as this worker knows: there are too
// many, or someone lets a worker that could use more use only one.
func (w *World) crowded() bool {
	ranks := 0
	for _, p := range w.layout.Workers {
		if p.Host == w.layout.Workers[w.layout.Worker].Host {
			ranks += p.Ranks
		}
	}
	return ranks > cores.Online() || w.procs == 1 && runtime.NumCPU() > 1
}
