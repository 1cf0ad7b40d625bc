// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec"
)

// checks compares what several devices hold of the variables of a training program: see reliability.check_every. Only hashes travel.
type checks struct {
	e    *Engine
	last uint64 // the step after which all was found equal; 0: none
}

// checks says what a training program is to be checked for.
func (e *Engine) checks(o *exec.StepOptions) {
	if every := e.opts.Config.Reliability.CheckEvery; every > 0 {
		o.CheckEvery, o.Check = every, (&checks{e: e}).compare
	}
	if e.opts.Faults.Flips() {
		o.Flip = e.opts.Faults.Flip
	}
	if e.opts.Faults.Spoils() {
		o.Spoil = e.opts.Faults.Spoil
	}
}

// CheckNow has what the last steps have left compared, if it was not and reliability.check_every is set: nobody is to save what is wrong. All workers call it at the same
// point.
func (e *Engine) CheckNow() error {
	e.mu.Lock()
	all := slices.Clone(e.checked)
	e.mu.Unlock()
	for _, x := range all {
		if err := x.CheckNow(); err != nil {
			return err
		}
	}
	return nil
}

// isChecked notes a training program whose variables are compared.
func (e *Engine) isChecked(x compute.Executable) {
	if e.opts.Config.Reliability.CheckEvery == 0 {
		return
	}
	c, ok := x.(exec.Checked)
	if !ok { // it runs on one device
		e.nothingToCompare()
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.checked = append(e.checked, c)
}

// nothingToCompare says that a job asks for what cannot be done.
func (e *Engine) nothingToCompare() {
	e.Notice("nothing to compare", "epl: reliability.check_every has no effect: no device holds what another one holds, too", true)
}

// absent is less than any hash, or its negative: nobody here holds it.
const absent = math.MinInt64

// compare looks whether devices that hold the same hold the same bits, on all workers.
func (c *checks) compare(step uint64, all []exec.Copies) error {
	if len(all) == 0 {
		c.e.nothingToCompare()
		return nil
	}
	extremes := make([]int64, 2*len(all)) // the largest hash and the largest negative
	for i, copies := range all {
		extremes[2*i], extremes[2*i+1] = absent, absent
		for _, h := range copies.Hashes {
			extremes[2*i], extremes[2*i+1] = max(extremes[2*i], int64(h)), max(extremes[2*i+1], -int64(h))
		}
	}
	if err := c.largest(extremes); err != nil {
		return err
	}
	differ := slices.Collect(func(yield func(exec.Copies) bool) {
		for i, copies := range all {
			if extremes[2*i] != -extremes[2*i+1] && extremes[2*i] != absent && !yield(copies) {
				return
			}
		}
	})
	if len(differ) == 0 {
		c.last = step
		return nil
	}
	if c.e.Differ != nil { // before any worker can know more, and end
		c.e.Differ()
	}
	var hashes []int64 // of all ranks that hold what differs
	for _, copies := range differ {
		for _, rank := range copies.Ranks {
			if h, mine := copies.Hashes[rank]; mine {
				hashes = append(hashes, int64(h))
			} else {
				hashes = append(hashes, absent)
			}
		}
	}
	if err := c.largest(hashes); err != nil {
		return err
	}
	return c.differs(step, differ, hashes)
}

// largest replaces each number by the largest that a worker has.
func (c *checks) largest(numbers []int64) error {
	if j := c.e.opts.Job; j != nil && len(numbers) > 0 {
		return j.LargestNow("reliability.check_every", numbers)
	}
	return nil
}

// DifferError says that devices that hold the same have different bits of it.
type DifferError struct {
	text    string
	workers []int // of those that differ from most, or from each other
}

// Error implements error.
func (e *DifferError) Error() string { return e.text }

// Culprits returns the workers that are to blame.
func (e *DifferError) Culprits() []int { return e.workers }

// differs is the error of variables that differ. hashes are those of their ranks, one after the other.
func (c *checks) differs(step uint64, differ []exec.Copies, hashes []int64) error {
	var first string
	var workers []int
	for i, copies := range differ {
		mine := hashes[:len(copies.Ranks)]
		hashes = hashes[len(copies.Ranks):]
		odd, same := split(copies.Ranks, mine)
		for _, rank := range odd {
			if w := c.workerOf(rank); !slices.Contains(workers, w) {
				workers = append(workers, w)
			}
		}
		if i > 0 {
			continue
		}
		what := fmt.Sprintf("variable %q", copies.Variable)
		if copies.Region != "" {
			what += " " + copies.Region
		}
		if len(same) > 0 {
			first = fmt.Sprintf("%s on %s is not that of %s", what, c.names(odd, mostOdd), c.names(same, mostSame))
		} else {
			first = fmt.Sprintf("%s is not the same on %s, and which is right cannot be known", what, c.names(odd, mostOdd))
		}
	}
	text := fmt.Sprintf("epl: after step %d, bits differ that have to be equal (reliability.check_every): %s", step, first)
	if n := len(differ) - 1; n > 0 {
		text += fmt.Sprintf("; %d others differ, too", n)
	}
	if c.last > 0 {
		text += fmt.Sprintf(". After step %d all were equal", c.last)
	}
	text += ". Memory, a processor or a device is damaged, or devices compute differently, as those of different kinds do, and GPUs that add in no fixed order (XLA_FLAGS=--xla_gpu_deterministic_ops=true forbids that). Nothing of this step is saved: go on from the newest checkpoint, " +
		"without the machine if it happens again"
	slices.Sort(workers)
	err := &DifferError{text, workers}
	if j := c.e.opts.Job; j != nil {
		j.Trouble(err)
	}
	return errors.WithStack(err)
}

// split tells the ranks that differ from those that more than half agree with; all of them, and none, if there is no such majority. A hash that is absent does not count.
func split(ranks []int, hashes []int64) (odd, same []int) {
	count, present := map[int64]int{}, 0
	for _, h := range hashes {
		if h != absent {
			count[h]++
			present++
		}
	}
	for i, h := range hashes {
		switch {
		case h == absent:
		case 2*count[h] > present:
			same = append(same, ranks[i])
		default:
			odd = append(odd, ranks[i])
		}
	}
	return odd, same
}

func (c *checks) workerOf(rank int) int {
	if c.e.opts.Job == nil {
		return 0
	}
	return c.e.opts.Job.WorkerOf(rank)
}

// How many ranks an error names of those that differ, and of those that agree.
const mostOdd, mostSame = 8, 3

// names says which ranks these are, and where.
func (c *checks) names(ranks []int, most int) string {
	var all []string
	for i, rank := range ranks {
		if i == most {
			all = append(all, fmt.Sprintf("%d more", len(ranks)-i))
			break
		}
		name := fmt.Sprintf("rank %d", rank)
		if j := c.e.opts.Job; j != nil {
			name += " of " + j.Name(j.WorkerOf(rank))
		}
		all = append(all, name)
	}
	if n := len(all); n > 1 {
		return strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	}
	return all[0]
}
