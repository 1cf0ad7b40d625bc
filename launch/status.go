package launch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/easyparallel/epl/rendezvous"
)

func itoa(n int) string { return strconv.Itoa(n) }

// rate finds a speed from numbers that grow, over the last few seconds.
type rate struct {
	at     []time.Time
	values []int64
}

// rateOver is how far back a speed looks: far enough that steps of a second do not make it jump.
const rateOver = 10 * time.Second

// add takes the number as it is now, and returns how much it grows in a second.
func (r *rate) add(now time.Time, value int64) float64 {
	r.at, r.values = append(r.at, now), append(r.values, value)
	for len(r.at) > 2 && now.Sub(r.at[1]) >= rateOver {
		r.at, r.values = r.at[1:], r.values[1:]
	}
	seconds := now.Sub(r.at[0]).Seconds()
	if seconds <= 0 || value < r.values[0] {
		return 0
	}
	return float64(value-r.values[0]) / seconds
}

// line is the live row about the job: workers up, step, samples per second, and who is busy or silent.
func (d *director) line() string {
	known := d.status()
	if !slices.ContainsFunc(known, func(w rendezvous.WorkerStatus) bool { return w.Joined }) {
		// They are on their way, or do not use EPL.
		return fmt.Sprintf("%d of %d workers running", d.running, len(d.hosts))
	}
	now := time.Now()
	joined, step, samples := 0, int64(-1), int64(0)
	var remarks []string
	for _, w := range known {
		samples += w.Samples
		switch {
		case w.Failed != "":
			remarks = append(remarks, fmt.Sprintf("[%d] failed", w.Index))
			continue
		case w.Left:
			remarks = append(remarks, fmt.Sprintf("[%d] finished", w.Index))
			continue
		case !w.Joined:
			continue
		case w.Silent:
			remarks = append(remarks, fmt.Sprintf("[%d] silent for %v", w.Index, now.Sub(w.Seen).Round(time.Second)))
		case w.Busy != "":
			remarks = append(remarks, fmt.Sprintf("[%d] %s for %v", w.Index, w.Busy, now.Sub(w.Since).Round(time.Second)))
		}
		joined++
		if step < 0 || w.Step < step {
			step = w.Step
		}
	}
	parts := []string{fmt.Sprintf("%d of %d workers up", joined, len(known))}
	if step > 0 {
		parts = append(parts, fmt.Sprintf("step %d", step))
	}
	if speed := d.rate.add(now, samples); speed > 0 {
		parts = append(parts, fmt.Sprintf("%.4g samples/s", speed))
	}
	return strings.Join(append(parts, remarks...), " · ")
}
