// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rootcause

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/easyparallel/epl/launch"
)

var (
	kills = flag.Int("drill.kills", 6, "how many workers to kill")
	stops = flag.Int("drill.stops", 2, "how many workers to stop")
	seed  = flag.Int64("drill.seed", 1, "of the random moments")
)

const (
	workers = 4
	// deathTime is how soon a death must be named, and the whole job be over.
	deathTime = 5 * time.Second
	// failGrace is how long the launcher lets workers end by themselves.
	failGrace = 3 * time.Second
	// slack is for a machine that does much else.
	slack = 2 * time.Second
)

var phases = []string{"start", "compile", "step", "save", "end"}

// timed collects output, and when each line came.
type timed struct {
	mu    sync.Mutex
	text  []byte
	lines []string
	at    []time.Time
	more  chan struct{}
}

func (o *timed) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	for {
		line, rest, found := bytes.Cut(o.text, []byte("\n"))
		if !found {
			return len(p), nil
		}
		o.lines, o.at, o.text = append(o.lines, string(line)), append(o.at, time.Now()), rest
		select {
		case o.more <- struct{}{}:
		default:
		}
	}
}

// all returns the lines so far, and when each came.
func (o *timed) all() ([]string, []time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.lines), slices.Clone(o.at)
}

// outcome is what came of an order.
type outcome struct {
	order
	status int
	last   string        // the launcher's last words
	named  time.Duration // until a worker, or the launcher, named the culprit
	seen   time.Duration // until somebody said that it was gone, or silent
	over   time.Duration // until the launcher had ended
	output string
	wrong  string // what is wrong with it; empty: nothing
}

// run has a job of workers, does to one what the order says, and returns what came of it.
func (o order) run(t *testing.T, moment time.Duration) outcome {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	out, errs := &timed{more: make(chan struct{}, 1)}, &timed{more: make(chan struct{}, 1)}
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "EPL_") || strings.HasPrefix(v, "GOMAXPROCS=")
	})
	ended := make(chan int, 1)
	go func() {
		status, err := launch.Run(t.Context(), launch.Options{Command: os.Args[:1], Workers: workers, Stdout: out, Stderr: errs,
			Environ: append(environ, orderVariable+"="+string(text))})
		if err != nil {
			status = -1
			fmt.Fprintln(errs, err)
		}
		ended <- status
	}()

	r := outcome{order: o, status: -1}
	hit := time.Time{}
	for wait := time.After(time.Minute); hit.IsZero(); {
		lines, _ := out.all()
		if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, fmt.Sprintf("[%d] pid ", o.Victim)) }); i >= 0 {
			pid, _ := strconv.Atoi(lines[i][len("[0] pid "):])
			signal := map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP}[o.Kind]
			if signal != 0 {
				time.Sleep(moment)
				if err := syscall.Kill(pid, signal); err != nil {
					r.wrong = fmt.Sprintf("worker %d had ended when it was to be hit: %v", o.Victim, err)
				}
			}
			hit = time.Now()
			break
		}
		select {
		case <-out.more:
		case status := <-ended:
			ended <- status
			r.wrong, hit = "it ended before anything was done to it", time.Now()
		case <-wait:
			t.Fatalf("%+v: worker %d did not get there:\n%s", o, o.Victim, strings.Join(lines, "\n"))
		}
	}
	select {
	case r.status = <-ended:
	case <-time.After(o.Timeout + time.Minute):
		t.Errorf("%+v: the job did not end", o)
		r.wrong = "it did not end"
	}
	r.over = time.Since(hit)
	r.judge(out, errs, hit)
	return r
}

// accusation is what is said of a culprit. The first one counts.
var accusation = regexp.MustCompile(`(worker|rank) (\d+)(?: \([^)]*\))? (?:is gone|ended|has ended|stopped:|has not been heard|did not come|did not arrive|held up|does not answer)`)

// silence is said of a worker that gives no sign of life any more, and what it was doing.
var silence = regexp.MustCompile(`has not been heard of for \d+ s; it may be stopped, or cut off; it was \w+, (?:after step \d+|before the end of the first step)$`)

// work is what the last words say of what a worker was doing.
var work = regexp.MustCompile(`; it had rank \d+, and was \w+, (?:after step \d+|before the end of the first step)$|; it had not joined the job yet$| did not come within `)

// judge looks whether the culprit was named, soon, and nobody else.
func (r *outcome) judge(out, errs *timed, hit time.Time) {
	lines, at := out.all()
	said, saidAt := errs.all()
	r.output = strings.Join(lines, "\n") + "\n" + strings.Join(said, "\n")
	if len(said) > 0 {
		r.last = said[len(said)-1]
	}
	complain := func(format string, args ...any) {
		if r.wrong == "" {
			r.wrong = fmt.Sprintf(format, args...)
		}
	}
	r.named, r.seen = r.over, r.over
	for i, line := range lines {
		worker, text, found := strings.Cut(line, "] FAILED: ")
		if !found || worker == fmt.Sprintf("[%d", r.Victim) {
			continue
		}
		if blamed := accusation.FindStringSubmatch(text); blamed == nil || blamed[2] != strconv.Itoa(r.Victim) {
			complain("%s] blames another: %s", worker, text)
		}
		r.named = min(r.named, at[i].Sub(hit))
	}
	for i, line := range said { // the launcher says it at once, and shows of the workers only what is news
		if whom, found := strings.CutPrefix(line, "epl-launch: the job stops because of "); found {
			if !strings.HasPrefix(whom, fmt.Sprintf("worker %d;", r.Victim)) {
				complain("the launcher says at first: %s", line)
			}
			r.named = min(r.named, saidAt[i].Sub(hit))
		}
		if silence.FindStringSubmatch(line) != nil && strings.Contains(line, fmt.Sprintf(" worker %d (", r.Victim)) {
			r.seen = min(r.seen, saidAt[i].Sub(hit))
		}
	}
	r.seen = min(r.seen, r.named)
	if !strings.HasPrefix(r.last, fmt.Sprintf("epl-launch: worker %d on ", r.Victim)) {
		complain("the last words are %q", r.last)
	}
	if r.Kind == "kill" || r.Kind == "stop" {
		if !work.MatchString(r.last) {
			complain("the last words do not say what the worker was doing: %q", r.last)
		}
		if r.seen > deathTime && r.Phase != "start" { // one that has not come yet may be slow
			complain("nobody said within %s that it is gone, or silent, but after %s", deathTime, r.seen)
		}
	}
	if want := map[string]int{"kill": 137, "stop": 1, "panic": 2}[r.Kind]; r.status != max(want, 1) {
		complain("the status is %d", r.status)
	}
	limit := deathTime
	if r.Kind == "stop" || r.Kind == "hang" {
		limit = r.Timeout + slack
	}
	if r.named > limit || r.over > limit+failGrace+slack {
		complain("it was named after %s, and over after %s", r.named, r.over)
	}
}

// TestDrill kills and stops workers, in all phases of a job.
func TestDrill(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes long; not with -short")
	}
	random := rand.New(rand.NewSource(*seed))
	var done []outcome
	for i := range *kills + *stops {
		o := order{Phase: phases[i%len(phases)], Kind: "kill", Victim: random.Intn(workers), Timeout: time.Minute, Folder: t.TempDir(),
			Stages: []int{1, 4, 2}[random.Intn(3)], Hosts: []string{"", "a,b,c,d", "a,a,b,b"}[random.Intn(3)]}
		if i >= *kills {
			o.Kind, o.Timeout = "stop", 8*time.Second
			o.Phase = phases[(i-*kills+2)%len(phases)] // a few of them should be in steps
		}
		r := o.run(t, time.Duration(random.Int63n(int64(stay)*8/10)))
		done = append(done, r)
		verdict := "right"
		if r.wrong != "" {
			verdict = "WRONG: " + r.wrong
			t.Errorf("%+v: %s\n%s", r.order, r.wrong, r.output)
		}
		t.Logf("%3d %-4s in %-7s worker %d, %d stages, hosts %-8q noticed after %4.2f s, named after %5.2f s, over after %5.2f s: %s",
			i+1, r.Kind, r.Phase, r.Victim, r.Stages, r.Hosts, r.seen.Seconds(), r.named.Seconds(), r.over.Seconds(), verdict)
	}
	t.Logf("\n%s", table(done))
}

// table shows how many were named right in each phase, and how soon.
func table(all []outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %-5s %12s %18s %14s %16s %12s %12s\n", "phase", "kind", "named right", "noticed (median)", "noticed (max)", "named (median)", "named (max)", "over (max)")
	for _, kind := range []string{"kill", "stop"} {
		for _, phase := range append(phases, "all") {
			right, count := 0, 0
			var seen, named []time.Duration
			var over time.Duration
			for _, r := range all {
				if r.Kind != kind || phase != "all" && r.Phase != phase {
					continue
				}
				if count++; r.wrong == "" {
					right++
				}
				seen, named, over = append(seen, r.seen), append(named, r.named), max(over, r.over)
			}
			if count == 0 {
				continue
			}
			slices.Sort(seen)
			slices.Sort(named)
			fmt.Fprintf(&b, "%-8s %-5s %12s %16.3f s %12.3f s %14.3f s %10.2f s %10.2f s\n", phase, kind, fmt.Sprintf("%d of %d", right, count),
				seen[count/2].Seconds(), seen[count-1].Seconds(), named[count/2].Seconds(), named[count-1].Seconds(), over.Seconds())
		}
	}
	return b.String()
}

// TestAProgramThatFailsOrEndsIsNamedAtOnce has workers whose own program does something.
func TestAProgramThatFailsOrEndsIsNamedAtOnce(t *testing.T) {
	for i, c := range []struct {
		phase, kind string
		words       string // in the launcher's last words
	}{
		{"start", "exit 0", "ended with status 0 before it joined the others"},
		{"step", "error", ""},
		{"step", "panic", "its program panicked: the disk is full"},
		{"step", "fatal", "exited with status 1"},
		{"step", "exit 0", "before it left the job"},
		{"step", "ends", "ended its part of the job after step 4"},
		{"compile", "error", ""},
		{"save", "error", ""},
		{"saving", "error", "worker 0 stopped: the disk is full"},
		{"save", "ends", "ended its part of the job after step 5"},
	} {
		t.Run(c.kind+" in "+c.phase, func(t *testing.T) {
			o := order{Phase: c.phase, Kind: c.kind, Victim: i % workers, Timeout: 5 * time.Minute, Folder: t.TempDir(),
				Stages: []int{1, 4}[i%2], Hosts: []string{"", "a,b,c,d", "a,a,b,b"}[i%3]}
			if c.phase == "saving" {
				o.Victim = 0
			}
			r := o.run(t, 0)
			if r.wrong != "" || !strings.Contains(r.last, c.words) {
				t.Errorf("%+v: %s; the last words are %q\n%s", o, r.wrong, r.last, r.output)
			}
			t.Logf("named after %.2f s, over after %.2f s: %s", r.named.Seconds(), r.over.Seconds(), r.last)
		})
	}
}

func TestAProgramThatHangsIsNamedWithinTheTimeout(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes long; not with -short")
	}
	for i, stages := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d stages", stages), func(t *testing.T) {
			t.Parallel()
			o := order{Phase: "step", Kind: "hang", Victim: 2 + i, Timeout: 4 * time.Second, Folder: t.TempDir(), Stages: stages}
			r := o.run(t, 0)
			if r.wrong != "" || !strings.Contains(r.last, "its own program holds it up") {
				t.Errorf("%+v: %s; the last words are %q\n%s", o, r.wrong, r.last, r.output)
			}
			t.Logf("named after %.2f s, over after %.2f s: %s", r.named.Seconds(), r.over.Seconds(), r.last)
		})
	}
}
