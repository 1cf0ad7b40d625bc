// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package drill

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/faults"
	"github.com/easyparallel/epl/internal/words"
)

// judge looks whether a run went as it should.
func (o *Options) judge(d Drill, r, calm run) Result {
	result := Result{Drill: d, Noticed: -1, Took: r.took, Output: r.output}
	wrong := func(format string, args ...any) { result.Wrong = append(result.Wrong, fmt.Sprintf(format, args...)) }
	at := slices.IndexFunc(r.lines, func(l line) bool { return strings.Contains(l.text, "epl: fault on rank") && !told.MatchString(l.text) })
	if at < 0 {
		result.Outcome = "the fault did not happen"
		wrong("the fault did not happen: %s", r.last())
		return result
	}
	after := slices.Concat(r.justBefore(at), r.lines[at+1:])
	goesOn := !d.Ends || o.saves()
	switch {
	case !r.over:
		result.Outcome = "did not end"
		wrong("the job did not end within %s", o.Limit)
	case r.status == 0:
		result.Outcome = "went on"
		if d.Ends && goesOn {
			result.Outcome = "restarted, went on"
		}
		if !goesOn {
			wrong("the job ended well although a worker was lost")
		}
	default:
		result.Outcome = fmt.Sprintf("ended with status %d", r.status)
		if goesOn {
			wrong("the job ended with status %d: %s", r.status, r.last())
		}
	}
	if d.Ends {
		result.Noticed, result.Wrong = o.noticed(d.Fault, r.lines[at].at, after, result.Wrong)
	}
	if d.Says != "" && !slices.ContainsFunc(after, func(l line) bool { return strings.Contains(l.text, d.Says) }) {
		wrong("nobody says %q", d.Says)
	}
	if o.saves() {
		if err := allRight(r.folder); err != nil {
			wrong("%v", err)
		}
		same, text := sameWeights(calm.folder, r.folder)
		if result.Weights = text; !same {
			wrong("weights: %s", text)
		}
	}
	return result
}

// overtakes is by how much the launcher's own words come before what a worker said: that comes through a pipe.
const overtakes = 200 * time.Millisecond

// justBefore are the lines before one that may answer it.
func (r run) justBefore(at int) []line {
	from := at
	for from > 0 && r.lines[at].at.Sub(r.lines[from-1].at) <= overtakes {
		from--
	}
	return r.lines[from:at]
}

// noticed looks when a fault was noticed, and whether the error names the worker, its machine and what it was doing.
func (o *Options) noticed(f faults.Fault, happened time.Time, after []line, wrong []string) (time.Duration, []string) {
	workers := fmt.Sprint(f.Rank / max(o.Devices, 1))
	if f.Link() { // either end may be named
		workers = fmt.Sprintf("(%s|%d)", workers, f.To/max(o.Devices, 1))
	}
	first := slices.IndexFunc(after, func(l line) bool { return stops.MatchString(l.text) })
	if first < 0 {
		return -1, append(wrong, "nobody says that the job, or this generation of its workers, stops")
	}
	seen := first
	if f.Kind == faults.Stop { // that it is silent is said at once; it has until communication.timeout to come back
		silent := regexp.MustCompile(`worker ` + workers + `\b.* has not been heard of`)
		if seen = slices.IndexFunc(after, func(l line) bool { return silent.MatchString(l.text) }); seen < 0 {
			return -1, append(wrong, "nobody says that the worker is silent")
		}
	}
	took := max(after[seen].at.Sub(happened), 0)
	if took > o.Notice {
		wrong = append(wrong, fmt.Sprintf("it was noticed after %.1f s, not within %s", took.Seconds(), o.Notice))
	}
	if f.Kind == faults.NaN { // all workers have the gradient, and nobody knows whose it was
		workers = `\d+`
	}
	name := "because of worker " + workers + `\b`
	if f.Kind == faults.Flip || f.Link() { // of two that differ, and of a connection, both are named
		name = "because of workers? .*\\b" + workers + `\b`
	}
	if !matches(after[first:first+1], name) {
		wrong = append(wrong, "another worker is named: "+after[first].text)
	}
	host, _ := os.Hostname()
	at := ` on `
	if f.Kind == faults.Flip { // the error itself says where
		at = ` (on |\()`
	}
	if !matches(after, `worker `+workers+at+regexp.QuoteMeta(host)) {
		wrong = append(wrong, "the error does not name the worker and its machine")
	}
	if !matches(after, `ended after step \d+|before the first step|in step \d+|stopped in |after step|sent to rank`) {
		wrong = append(wrong, "the error does not say what the worker was doing")
	}
	return took, wrong
}

// stops is what the launcher says when it hears of a failure.
var stops = regexp.MustCompile(`^epl-launch: (the job|generation \d+) stops because of`)

// matches tells whether one of the lines does.
func matches(lines []line, pattern string) bool {
	re := regexp.MustCompile(pattern)
	return slices.ContainsFunc(lines, func(l line) bool { return re.MatchString(l.text) })
}

// allRight looks whether every checkpoint that is listed is whole.
func allRight(dir string) error {
	all, _, damaged, err := checkpoint.List(checkpoint.OS, dir)
	if err != nil {
		return err
	}
	if len(damaged) > 0 {
		return damaged[0]
	}
	for _, l := range all {
		c, err := checkpoint.Open(checkpoint.OS, filepath.Join(dir, l.Name))
		if err != nil {
			return err
		}
		err = c.Verify(0, 1)
		c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// sameWeights compares the newest checkpoints of two folders: variables and steps must be equal, bit for bit. It says what differs.
func sameWeights(a, b string) (same bool, text string) {
	var both [2]*checkpoint.Checkpoint
	for i, dir := range []string{a, b} {
		all, _, _, err := checkpoint.List(checkpoint.OS, dir)
		if err != nil || len(all) == 0 {
			return false, fmt.Sprintf("there is no checkpoint in %s", dir)
		}
		c, err := checkpoint.Open(checkpoint.OS, filepath.Join(dir, all[len(all)-1].Name))
		if err != nil {
			return false, err.Error()
		}
		defer c.Close()
		both[i] = c
	}
	if x, y := both[0].Manifest.Step, both[1].Manifest.Step; x != y {
		return false, fmt.Sprintf("the last checkpoint is of step %d, not %d", y, x)
	}
	differ, err := checkpoint.Compare(both[0], both[1])
	switch {
	case err != nil:
		return false, err.Error()
	case len(differ) == 0:
		return true, "equal"
	case differ[0].Text != "":
		return false, fmt.Sprintf("%s: %s", differ[0].Path, differ[0].Text)
	}
	verb := "differ"
	if len(differ) == 1 {
		verb += "s"
	}
	return false, fmt.Sprintf("%s %s; %s in %d of %d elements, by %.3g at most", words.Count(len(differ), "variable"), verb, differ[0].Path, differ[0].Elements, differ[0].Of, differ[0].Most)
}
