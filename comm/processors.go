package comm

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// processors is how many this machine has, whichever of them this process may use.
var processors = sync.OnceValue(func() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return runtime.NumCPU()
	}
	return max(countProcessors(strings.TrimSpace(string(text))), runtime.NumCPU())
})

// countProcessors counts a list such as "0-3,8".
func countProcessors(list string) (n int) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA == nil && errB == nil && a <= b {
			n += b - a + 1
		}
	}
	return n
}

// crowded tells whether the ranks of this host do not have a processor each, as far as this worker knows: there are too
// many, or someone lets a worker that could use more use only one.
func (w *World) crowded() bool {
	ranks := 0
	for _, p := range w.layout.Workers {
		if p.Host == w.layout.Workers[w.layout.Worker].Host {
			ranks += p.Ranks
		}
	}
	return ranks > processors() || w.procs == 1 && runtime.NumCPU() > 1
}
