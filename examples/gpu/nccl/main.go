// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command nccl trains over several processes whose GPUs communicate by NCCL, under many plans, and compares losses and weights with those of one
// device on the same samples. One GPU is enough: NCCL takes its processes for those of different hosts.
//
//	go run ./examples/gpu/nccl -run 'ZeRO|Split' -processes 2
//	go run ./examples/gpu/nccl -backend go    # the same on CPUs, which communicate through the host
//
// It starts itself again for each worker, and needs a plugin of XLA: see docs/gpu.md. A row of the table has how devices communicated: the collectives
// inside their modules, by env.Explain, and the bytes that went through the host, by env.Stats.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	_ "github.com/easyparallel/epl/xla"
)

// options are the command line.
type options struct {
	backend, reference string
	only               *regexp.Regexp
	processes          int
	oneGPU             bool
	timeout            time.Duration
	parallel           int
	count              int
	logs               string
}

func main() {
	if played() {
		return
	}
	var o options
	flag.StringVar(&o.backend, "backend", "xla:cuda", "what workers run on")
	flag.StringVar(&o.reference, "reference", "", "what the one device is that they are compared with (default: as -backend)")
	only := flag.String("run", "", "`regular expression`: the rows to make")
	flag.IntVar(&o.processes, "processes", 0, "make the rows of so many processes only")
	flag.BoolVar(&o.oneGPU, "one-gpu", true, "all processes share a GPU; otherwise each has the one of its number")
	flag.DurationVar(&o.timeout, "timeout", 90*time.Second, "kill workers of a row after this time")
	flag.IntVar(&o.parallel, "parallel", 1, "rows that are made at the same time")
	flag.IntVar(&o.count, "count", 1, "make each row so many times")
	flag.StringVar(&o.logs, "logs", "", "`folder` for what workers say")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil || flag.NArg() > 0 || o.parallel < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if !o.table(os.Stdout) {
		os.Exit(1)
	}
}

// table makes all rows, and tells whether all are right.
func (o options) table(w io.Writer) bool {
	fmt.Fprintf(w, "%-58s %8s %8s %6s  %s\n", "", "losses", "weights", "", "communication")
	var rows []chan row
	turns := make(chan struct{}, o.parallel)
	var all []try
	for range o.count {
		all = append(all, tries()...)
	}
	for _, t := range all {
		if !o.only.MatchString(t.String()) || o.processes > 0 && t.processes != o.processes {
			continue
		}
		made := make(chan row, 1)
		rows = append(rows, made)
		go func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			begun := time.Now()
			r := o.row(t)
			r.try, r.seconds = t, time.Since(begun).Seconds()
			made <- r
		}()
	}
	right := 0
	for _, made := range rows {
		r := <-made
		fmt.Fprintln(w, r)
		if r.err == nil {
			right++
		}
	}
	fmt.Fprintf(w, "%d of %d comparisons are right\n", right, len(rows))
	return right == len(rows) && right > 0
}

// row is a line of the table.
type row struct {
	try             try
	losses, weights float64 // the largest differences
	by              string
	seconds         float64
	err             error
}

func (r row) String() string {
	numbers := fmt.Sprintf("%8.0e %8.0e", r.losses, r.weights)
	if r.try.does != "" || len(r.by) == 0 {
		numbers = fmt.Sprintf("%8s %8s", "", "")
	}
	s := fmt.Sprintf("%-58s %s %4.0f s  %s", r.try, numbers, r.seconds, r.by)
	if r.err != nil {
		s += "\n    WRONG: " + r.err.Error()
	}
	return s
}

// row makes one.
func (o options) row(t try) (r row) {
	if t.does != "" {
		r.by, r.err = o.wrong(t)
		return r
	}
	want, err := o.alone(t)
	if err != nil {
		return row{err: fmt.Errorf("on one device: %w", err)}
	}
	got, said, err := o.run(t, 1)
	if err != nil {
		return row{err: err}
	}
	for i, g := range got {
		losses, weights, err := want.compare(g)
		if err != nil {
			return row{err: fmt.Errorf("worker %d: %w", i, err)}
		}
		r.losses, r.weights = max(r.losses, losses), max(r.weights, weights)
	}
	inside, host := communication(got)
	r.by = strings.Trim(inside+"; "+host, "; ")
	reason := regexp.MustCompile(`communicate through the host, because (.*)`).FindStringSubmatch(said)
	if reason != nil {
		r.by += "; through the host, because " + reason[1]
	}
	switch gpus := strings.HasPrefix(o.backend, "xla"); {
	case !(max(r.losses, r.weights) <= t.tolerance()):
		r.err = fmt.Errorf("differences may be up to %.0e", t.tolerance())
	case gpus && (inside != "") != (t.by == byNCCL):
		r.err = fmt.Errorf("collectives in modules: %q, by NCCL: %v", inside, t.by == byNCCL)
	case gpus && t.evaluates && programs(got) < 2:
		r.err = fmt.Errorf("evaluation has no collectives in its modules")
	case gpus && reason != nil:
		r.err = fmt.Errorf("devices communicate through the host")
	}
	return r
}

// run runs the workers of a try, and returns what they found, and what the first one says.
func (o options) run(t try, batches int) (all []*result, said string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	j, err := start(ctx, t, batches, o)
	if j != nil {
		defer j.close(t, o.logs)
	}
	if err == nil {
		err = j.wait(ctx, o.timeout)
	}
	if err != nil {
		return nil, "", err
	}
	for _, p := range j.workers {
		r, err := p.result()
		if err != nil {
			return nil, "", err
		}
		all = append(all, r)
	}
	return all, j.workers[0].output(), nil
}

// references are results of one device, by what was trained.
var references sync.Map

// alone is the same training on one device.
func (o options) alone(t try) (*result, error) {
	one := t.alone()
	if o.reference != "" {
		o.backend = o.reference
	}
	made, _ := references.LoadOrStore(o.backend+" "+one.name, sync.OnceValues(func() (*result, error) {
		all, _, err := o.run(one, t.batches())
		if err != nil {
			return nil, err
		}
		return all[0], nil
	}))
	return made.(func() (*result, error))()
}

// compare is how far losses and weights are off, relative to the largest of each.
func (want *result) compare(got *result) (losses, weights float64, err error) {
	if len(want.Losses) < steps || len(got.Losses) != len(want.Losses) || len(got.Weights) != len(want.Weights) || len(want.Weights) == 0 {
		return 0, 0, fmt.Errorf("%d losses and %d variables, not %d and %d", len(got.Losses), len(got.Weights), len(want.Losses), len(want.Weights))
	}
	var w, g []float32
	for path, x := range want.Weights {
		y := got.Weights[path]
		if len(y) != len(x) {
			return 0, 0, fmt.Errorf("variable %s has %d elements, not %d", path, len(y), len(x))
		}
		w, g = append(w, x...), append(g, y...)
	}
	return distance(want.Losses, got.Losses), distance(w, g), nil
}

// distance is the largest difference, relative to the largest number; infinite if one is no number.
func distance(want, got []float32) float64 {
	var largest, diff float64
	for i, x := range want {
		d := math.Abs(float64(x) - float64(got[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		largest, diff = max(largest, math.Abs(float64(x))), max(diff, d)
	}
	return diff / largest
}

var together = regexp.MustCompile(`devices of stage group \d+ run \d+ segments? together, with collectives inside: (\d+ [a-z-]+(, \d+ [a-z-]+)*)`)

// programs is how many have collectives in their modules.
func programs(all []*result) int {
	return len(together.FindAllString(strings.Join(strings.Fields(all[0].Explain), " "), -1))
}

// communication is what devices did by collectives in their modules, and what was sent besides in a step, through the host or from GPU to GPU.
func communication(all []*result) (inside, host string) {
	counts := map[string]int{}
	for _, found := range together.FindAllStringSubmatch(strings.Join(strings.Fields(all[0].Explain), " "), -1) {
		for one := range strings.SplitSeq(found[1], ", ") {
			var n int
			var how string
			if _, err := fmt.Sscan(one, &n, &how); err == nil {
				counts[how] += n
			}
		}
	}
	if len(counts) > 0 {
		inside = byNCCL + ": " + listed(counts)
	}
	sent := map[string]int{}
	for _, r := range all {
		for how, bytes := range r.Sent {
			if bytes >= steps {
				sent[how] += int(bytes) / steps
			}
		}
	}
	gpus := sent["copy"]
	delete(sent, "copy")
	if len(sent) > 0 {
		host = "host, bytes: " + listed(sent)
	}
	if gpus > 0 {
		host = strings.TrimPrefix(fmt.Sprintf("%s; GPU to GPU, bytes: %d", host, gpus), "; ")
	}
	return inside, host
}

func listed(counts map[string]int) string {
	var all []string
	for how, n := range counts {
		all = append(all, fmt.Sprintf("%s %d", how, n))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// wrong lets something go wrong, and looks at what the workers say.
func (o options) wrong(t try) (said string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	j, err := start(ctx, t, 1, o)
	if j != nil {
		defer j.close(t, o.logs)
	}
	if err != nil {
		return "", err
	}
	last := len(j.workers) - 1
	left, words := j.workers, []string{"do not agree on training program", "worker "}
	if t.does == killed {
		for _, p := range j.workers {
			for !strings.Contains(p.output(), inTheMiddle) {
				select {
				case <-p.end:
					return "", fmt.Errorf("it ended by itself: %s", p.said())
				case <-time.After(20 * time.Millisecond):
				}
			}
		}
		left, words = j.workers[:last], []string{fmt.Sprintf("worker %d (", last), "is gone"}
		_ = j.workers[last].cmd.Process.Kill()
	}
	begun := time.Now()
	for i, p := range left {
		<-p.end
		if ctx.Err() != nil {
			return "", fmt.Errorf("worker %d is stuck: killed after %v: %s", i, o.timeout, p.said())
		}
		for _, word := range words {
			if p.err == nil || !strings.Contains(p.said(), word) {
				return "", fmt.Errorf("worker %d does not say %q: %s", i, word, p.said())
			}
		}
	}
	_, said, _ = strings.Cut(left[0].said(), "epl: ")
	said = string([]rune(said)[:min(240, len([]rune(said)))])
	if t.does == killed {
		said = fmt.Sprintf("the others end after %.1f s: %s", time.Since(begun).Seconds(), said)
	}
	return said, nil
}
