// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package drill

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/faults"
)

// Options say what to run, and how.
type Options struct {
	// Command is the training program. "{dir}" in it stands for a folder that each run has for itself. The checkpoints in it are compared; workers of such a program
	// are started anew when one is lost.
	Command []string
	Workers int
	// Devices of each worker.
	Devices int
	// Only are the drills to run, by the first words of their names. None: all.
	Only []string
	// Notice is how soon a fault must be noticed.
	Notice time.Duration
	// Limit is how long a run may take.
	Limit time.Duration
	// Folder has the outputs and the checkpoints of all runs.
	Folder string
	// Progress is told what is done; nil: nobody.
	Progress io.Writer
	// Self is the command that calls launch.Guard when given the argument "--guard".
	Self []string
}

// Drill is a fault, and what should come of it.
type Drill struct {
	Name  string
	Fault faults.Fault
	// Ends tells that workers end because of it. Else training goes on.
	Ends bool
	// Says is what somebody has to say about it, besides who it was; "": nothing.
	Says string
}

// Result is what came of a drill.
type Result struct {
	Drill
	Noticed time.Duration // from when it happened; negative: nobody had to
	Took    time.Duration
	Outcome string   // in a few words
	Weights string   // compared with those of the undisturbed run
	Wrong   []string // none: it is as it should be
	Output  string   // a file
}

// never is a step that no run has.
const never = math.MaxInt32

// folderMark stands for the folder of a run.
const folderMark = "{dir}"

// saves tells whether the runs have folders for checkpoints.
func (o *Options) saves() bool {
	return slices.ContainsFunc(o.Command, func(word string) bool { return strings.Contains(word, folderMark) })
}

// Run runs all drills. An error is what kept them from being run.
func Run(ctx context.Context, o Options) (all []Result, err error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	calm, err := o.undisturbed(ctx)
	if err != nil {
		return nil, err
	}
	drills := o.drills(calm)
	if len(drills) == 0 {
		return nil, errors.Errorf("epl: no drill is called %s; there are kill, save, stop, cut, corrupt, delay, flip, nan, slow, full and error, as far as the program saves and has several workers",
			strings.Join(o.Only, ", "))
	}
	for i, d := range drills {
		fmt.Fprintf(o.Progress, "drill %d of %d: %-22s ", i+1, len(drills), d.Name)
		r, err := o.run(ctx, fmt.Sprint(i+1), faults.Text([]faults.Fault{d.Fault}))
		if err != nil {
			fmt.Fprintln(o.Progress)
			return all, err
		}
		result := o.judge(d, r, calm)
		all = append(all, result)
		verdict := "ok"
		if len(result.Wrong) > 0 {
			verdict = "WRONG"
		}
		fmt.Fprintf(o.Progress, "%s (%.1f s)\n", verdict, result.Took.Seconds())
	}
	return all, nil
}

// undisturbed runs the program while nothing goes wrong.
func (o *Options) undisturbed(ctx context.Context) (calm run, err error) {
	nothing := faults.Text([]faults.Fault{{Kind: faults.Kill, Step: never, Generation: 1}}) // its worker says how many steps and saves there were
	times := 1
	if o.saves() {
		times = 2
	}
	var runs []run
	for i := range times {
		fmt.Fprintf(o.Progress, "undisturbed, run %d of %d: ", i+1, times)
		r, err := o.run(ctx, fmt.Sprint("undisturbed-", i+1), nothing)
		if err != nil {
			fmt.Fprintln(o.Progress)
			return r, err
		}
		fmt.Fprintf(o.Progress, "%d steps, %d saves (%.1f s)\n", r.steps, r.saves, r.took.Seconds())
		switch {
		case r.status != 0:
			return r, errors.Errorf("epl: the program fails although nothing goes wrong, with status %d: %s; see %s", r.status, r.last(), r.output)
		case r.steps == 0:
			return r, errors.Errorf("epl: the program says nothing about its steps: it must train on EPL with %d workers, and close its Env at the end (defer env.Close()); see %s", o.Workers, r.output)
		}
		runs = append(runs, r)
	}
	calm = runs[0]
	if o.saves() {
		if calm.saves == 0 {
			return calm, errors.Errorf("epl: the program saves no checkpoint by env.Checkpoints; leave %s out, or see docs/checkpoints.md", folderMark)
		}
		if same, text := sameWeights(calm.folder, runs[1].folder); !same {
			return calm, errors.Errorf("epl: two undisturbed runs end with different weights, so that nothing can be said about others: %s; "+
				"begin with the same weights (model.ParamInitialSeed) and let the dataset give the same order", text)
		}
	}
	return calm, nil
}

// drills are those that make sense for a program that was run.
func (o *Options) drills(calm run) (all []Drill) {
	add := func(name, says string, ends bool, f faults.Fault) {
		f.Generation = 1
		chosen := func(word string) bool {
			return strings.HasPrefix(name, strings.TrimSpace(word)) || strings.Contains(name, " "+strings.TrimSpace(word))
		}
		if len(o.Only) == 0 || slices.ContainsFunc(o.Only, chosen) {
			all = append(all, Drill{name, f, ends, says})
		}
	}
	rank := func(worker int) int { return worker * max(o.Devices, 1) }
	half, last := calm.steps/2+1, o.Workers-1
	for w := range o.Workers {
		add(fmt.Sprintf("kill rank %d", rank(w)), "", true, faults.Fault{Kind: faults.Kill, Rank: rank(w), Step: half})
	}
	save := min(2, calm.saves) // one that has another before it, if there are two
	if save > 0 {
		for _, w := range slices.Compact([]int{0, last}) {
			add(fmt.Sprintf("kill rank %d in a save", rank(w)), "", true, faults.Fault{Kind: faults.Kill, Rank: rank(w), Save: save})
		}
	}
	if o.Workers > 1 {
		add("stop a worker", "", true, faults.Fault{Kind: faults.Stop, Rank: rank(last), Step: half})
		add("cut a connection", "connection", true, faults.Fault{Kind: faults.Cut, Rank: 0, To: rank(last), Step: half})
		add("corrupt what is sent", "damaged", true, faults.Fault{Kind: faults.Corrupt, Rank: rank(last), To: 0, Step: half})
		add("delay what is sent", "", false, faults.Fault{Kind: faults.Delay, Rank: 0, To: rank(last), Step: half, Time: 2 * time.Millisecond})
	}
	if o.Workers*max(o.Devices, 1) > 1 {
		add("flip a bit", "bits differ that have to be equal", true, faults.Fault{Kind: faults.Flip, Rank: rank(last), Step: half})
	}
	if o.Workers*max(o.Devices, 1) > 1 {
		add("nan in a gradient", "is not finite", true, faults.Fault{Kind: faults.NaN, Rank: rank(last), Step: half})
	}
	add("slow device", "", false, faults.Fault{Kind: faults.Slow, Rank: rank(last), Step: half, Factor: 20})
	if save > 0 {
		add("disk full", "was not saved", false, faults.Fault{Kind: faults.DiskFull, Rank: rank(last), Save: save})
		add("disk error", "was not saved", false, faults.Fault{Kind: faults.DiskError, Rank: 0, Save: save})
	}
	return all
}

// prepare makes the folder of a run, and its command.
func (o *Options) prepare(name string) (command []string, folder string, err error) {
	folder = filepath.Join(o.Folder, name)
	for _, word := range o.Command {
		command = append(command, strings.ReplaceAll(word, folderMark, folder))
	}
	return command, folder, os.MkdirAll(folder, 0o777)
}
