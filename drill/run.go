// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package drill

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/faults"
	"github.com/easyparallel/epl/launch"
)

// run is one run of the program.
type run struct {
	folder string
	output string // a file
	lines  []line
	status int
	over   bool // it ended in time
	took   time.Duration
	steps  int // if its first worker has told
	saves  int
}

// line is one of a run's output.
type line struct {
	text string
	at   time.Time
}

// restarts is how often workers are started anew.
const restarts = 3

// What the environment says in some drills, unless it or the program says otherwise: a worker that is stopped ends the job after communication.timeout, for which nobody
// has to wait in a drill; a bit that changes is noticed by who looks.
var settings = []struct{ kind, variable, value string }{
	{faults.Stop, "EPL_COMMUNICATION_TIMEOUT", "10s"},
	{faults.Flip, "EPL_RELIABILITY_CHECK_EVERY", "1"},
	{faults.NaN, "EPL_RELIABILITY_NAN", "stop"},
}

// run runs the program once, with faults.
func (o *Options) run(ctx context.Context, name, wrong string) (r run, err error) {
	command, folder, err := o.prepare(name)
	if err != nil {
		return r, err
	}
	r.folder, r.output = folder, filepath.Join(o.Folder, name+".log")
	both := &recorder{}
	limited, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	environ := append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, faults.Env+"=") }), faults.Env+"="+wrong)
	for _, s := range settings {
		if strings.HasPrefix(wrong, s.kind+":") && os.Getenv(s.variable) == "" {
			environ = append(environ, s.variable+"="+s.value)
		}
	}
	options := launch.Options{Command: command, Workers: o.Workers, DevicesPerWorker: o.Devices, Stdout: both, Stderr: both, Self: o.Self, Environ: environ}
	if o.saves() {
		options.MinWorkers, options.MaxRestarts = o.Workers, restarts
	}
	start := time.Now()
	r.status, err = launch.Run(limited, options)
	r.took, r.over, r.lines = time.Since(start), limited.Err() == nil, both.all()
	if err != nil {
		return r, err
	}
	if ctx.Err() != nil {
		return r, errors.New("epl: the drills were interrupted")
	}
	for _, l := range r.lines {
		if m := told.FindStringSubmatch(l.text); m != nil {
			r.steps, _ = strconv.Atoi(m[1])
			r.saves, _ = strconv.Atoi(m[2])
		}
	}
	return r, os.WriteFile(r.output, r.text(), 0o666)
}

// told is what a worker says at the end about a fault that did not happen.
var told = regexp.MustCompile(`did not happen: the run had (\d+) steps? and (\d+) saves?`)

// text is the output, each line with its time.
func (r run) text() []byte {
	var b bytes.Buffer
	for _, l := range r.lines {
		fmt.Fprintf(&b, "%s %s\n", l.at.Format("15:04:05.000"), l.text)
	}
	return b.Bytes()
}

// last is the last line of the output.
func (r run) last() string {
	if len(r.lines) == 0 {
		return "it says nothing"
	}
	return r.lines[len(r.lines)-1].text
}

// recorder takes output, and when each line came.
type recorder struct {
	mu    sync.Mutex
	part  []byte
	lines []line
}

// Write implements io.Writer.
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.part = append(r.part, p...)
	for {
		text, rest, found := bytes.Cut(r.part, []byte("\n"))
		if !found {
			return len(p), nil
		}
		r.lines, r.part = append(r.lines, line{string(text), time.Now()}), rest
	}
}

func (r *recorder) all() []line {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.part) > 0 {
		return append(slices.Clone(r.lines), line{string(r.part), time.Now()})
	}
	return slices.Clone(r.lines)
}
