// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/term"

	"github.com/easyparallel/epl/dashboard"
)

// lastLines is how many lines of the worker that failed are shown at the end.
const lastLines = 20

const (
	// inView is how many lines may follow a worker's last one for who reads standard error to still see it.
	inView = 10
	// outOfView stands for a line that went elsewhere.
	outOfView = -inView - 1
)

// display shows what the workers print, each line behind its worker's index, and below it on a terminal what they are
// doing now. It also writes the logs, and remembers the last lines.
type display struct {
	out, err *screen
	width    func() int // of the terminal; nil: there is none
	together bool       // who reads standard error reads standard output too
	// unread is closed when nobody reads standard output any more.
	unread chan struct{}

	mu        sync.Mutex
	logs      logs
	echoes    echoes
	dashboard *dashboard.Server // nil: there is none
	heard     map[int]bool      // workers that told it of a step
	announced bool              // that the job stops
	job       string            // what is said to stop then
	tails     map[int][]string
	shown     int         // lines, to who reads standard error
	at        map[int]int // shown, when a worker's last line was
	status    string      // the live rows: about the job, and of a worker's progress bar
	progress  string
	drawn     int // how many rows stand there
}

// screen is where one of the streams goes.
type screen struct {
	io.Writer
	name             string
	terminal, colour bool
	stdout           bool // it is standard output, or goes where that goes
	broken           bool
}

// newDisplay shows on the streams of the options.
func newDisplay(o Options) *display {
	noColour, _ := o.lookup("NO_COLOR")
	kind, _ := o.lookup("TERM")
	live := !o.plain && kind != "dumb"
	to := func(w io.Writer, name string) *screen {
		terminal := live && isTerminal(w)
		return &screen{Writer: w, name: name, terminal: terminal, colour: terminal && noColour == ""}
	}
	d := &display{out: to(o.Stdout, "standard output"), err: to(o.Stderr, "standard error"), unread: make(chan struct{}),
		job: "the job", echoes: newEchoes(), tails: map[int][]string{}, at: map[int]int{}}
	d.out.stdout, d.err.stdout = true, sameFile(o.Stdout, o.Stderr)
	d.together = d.err.stdout || d.out.terminal && d.err.terminal
	d.logs = logs{say: d.sayf, files: map[int]*os.File{}, lost: map[int]error{}}
	if d.err.terminal {
		d.width = func() int { return widthOf(o.Stderr) }
	}
	return d
}

// widthOf is that of a terminal.
func widthOf(w io.Writer) int {
	width, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil || width < 10 {
		return 80
	}
	return width
}

// sameFile tells whether two streams end in one place, as after 2>&1.
func sameFile(a, b io.Writer) bool {
	fileA, ok := a.(*os.File)
	fileB, ok2 := b.(*os.File)
	if !ok || !ok2 {
		return false
	}
	infoA, err := fileA.Stat()
	infoB, err2 := fileB.Stat()
	return err == nil && err2 == nil && os.SameFile(infoA, infoB)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// openLogs makes a log for each of the workers first, first+1, … of a job of so many, if there are to be logs.
func (d *display) openLogs(o Options, first, count, workers int) error {
	if o.LogDir == "" {
		return nil
	}
	label := o.TaskLabel
	if label == "" {
		label = time.Now().Format("20060102-150405")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.logs.open(filepath.Join(o.LogDir, label), first, count, workers)
}

// unused says which variables of the environment describe another job.
func (d *display) unused(o Options) {
	if vars := o.unused(); len(vars) > 0 && !o.allocated {
		d.note("%s in the environment: not used, since epl-launch says itself how many workers there are and where they meet; "+
			"use its flags, such as --num_workers", strings.Join(vars, ", "))
	}
}

// begin forgets how workers ended that have been started anew, and marks that in their logs.
func (d *display) begin(generation, workers int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.job = fmt.Sprint("generation ", generation)
	if generation == 1 {
		return
	}
	d.echoes, d.announced, d.tails, d.at = newEchoes(), false, map[int][]string{}, map[int]int{}
	d.heard = nil
	d.dashboard.Put(dashboard.Event{Generation: generation})
	for w := range workers {
		d.logs.write(w, fmt.Sprintf("epl-launch: %s begins here, %s", d.job, time.Now().Format(time.DateTime)))
	}
}

// lastLine is the last that a worker has printed.
func (d *display) lastLine(worker int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if tail := d.tails[worker]; len(tail) > 0 {
		return tail[len(tail)-1]
	}
	return ""
}

// close removes the live rows and closes the logs.
func (d *display) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status, d.progress = "", ""
	d.clear()
	d.logs.close()
}

// failed says why the job stops, and who is to blame: the others need not repeat it.
func (d *display) failed(blamed []int, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.echoes.set(blamed, reason)
}

// announce says at once that the job stops, because the others may take a while to end. Why is said at the end.
func (d *display) announce(blamed []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.announced = true
	because := ""
	if len(blamed) > 0 {
		because = " because of " + workersText(blamed)
	}
	d.says(dashboard.Failure, "%s stops%s; errors of others that only repeat the reason are not shown", d.job, because)
}

// line shows a line of a worker.
func (d *display) line(l line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := clean(l.Text, false)
	if l.Update {
		d.progress = prefix(l.Worker, false) + text
		d.redraw()
		return
	}
	d.logs.write(l.Worker, text)
	if d.dashboard != nil {
		d.dashboard.Put(dashboard.Event{Worker: l.Worker, Log: text})
	}
	if d.echoes.is(l, text, d.tails) {
		return
	}
	tail := append(d.tails[l.Worker], text)
	d.tails[l.Worker] = tail[max(0, len(tail)-lastLines):]

	to := d.out
	if l.Stream == 2 {
		to = d.err
	}
	if strings.HasPrefix(d.progress, prefix(l.Worker, false)) {
		d.progress = ""
	}
	d.clear()
	d.put(to, prefix(l.Worker, to.colour)+d.fit(to, l)+"\n")
	if d.at[l.Worker] = outOfView; to == d.err || d.together {
		d.shown++
		d.at[l.Worker] = d.shown
	}
	d.redraw()
}

// fit returns a line of a worker as it looks on a screen: on a terminal an error of ours, which is a long sentence, is
// broken between words.
func (d *display) fit(to *screen, l line) string {
	text := clean(l.Text, to.colour)
	if strings.Contains(text, "\x1b") {
		return text + "\x1b[0m" // a colour that was left on must not run into other workers' lines
	}
	if start := len(prefix(l.Worker, false)); strings.Contains(text, "epl: ") {
		return d.wrap(to, text, start, start)
	}
	return text
}

// wrap breaks a text between words if it goes to a terminal.
func (d *display) wrap(to *screen, text string, start, indent int) string {
	if !to.terminal || d.width == nil {
		return text
	}
	return wrap(text, d.width(), start, indent)
}

// put writes. That nobody reads on is known from the error of a write, and only from one to standard output: the signal
// that comes with it, SIGPIPE, comes with every connection too that somebody has closed.
func (d *display) put(to *screen, text string) {
	_, err := io.WriteString(to, text)
	if err == nil || to.broken {
		return
	}
	to.broken = true
	switch {
	case !errors.Is(err, syscall.EPIPE):
		if to == d.out {
			d.sayf("%s cannot be written (%v): what workers print is lost", to.name, err)
		}
	case to.stdout:
		close(d.unread)
		d.out.stdout, d.err.stdout = false, false // once
	}
}

// note shows something that the launcher has to say.
func (d *display) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sayf(format, args...)
}

// say is note, and tells the dashboard what kind of notice it is.
func (d *display) say(kind, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.says(kind, format, args...)
}

func (d *display) sayf(format string, args ...any) { d.says(dashboard.Note, format, args...) }

func (d *display) says(kind, format string, args ...any) {
	const name = "epl-launch: "
	d.clear()
	said := fmt.Sprintf(format, args...)
	d.notice(kind, strings.Join(cleanLines(said), "\n"))
	for i, text := range cleanLines(name + said) {
		start := 0
		if i > 0 {
			start = 2
		}
		d.put(d.err, strings.Repeat(" ", start)+d.wrap(d.err, text, start, 2)+"\n")
		d.shown++
	}
	d.redraw()
}

// setStatus replaces the live row about the job.
func (d *display) setStatus(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if text = clean(text, false); text != d.status {
		d.status = text
		d.redraw()
	}
}

// last shows how a worker ended, as the last words; before them its last lines, unless a reader still sees them.
func (d *display) last(worker int, how string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if others := slices.DeleteFunc(d.echoes.workers(), func(w int) bool { return w == worker }); len(others) > 0 && !d.announced {
		d.sayf("%s stopped for the same reason", workersText(others))
	}
	tail := d.tails[worker]
	how += d.logs.where(worker)
	switch {
	case len(tail) == 0:
		d.says(dashboard.Failure, "%s; it printed nothing", how)
		return
	case d.shown-d.at[worker] > inView:
		d.sayf("the last lines of worker %d:", worker)
		for _, text := range tail {
			d.put(d.err, prefix(worker, d.err.colour)+text+"\n")
		}
	}
	d.says(dashboard.Failure, "%s", how)
}

// clear takes the live rows away, and leaves the cursor where they began.
func (d *display) clear() {
	if d.drawn == 0 {
		return
	}
	d.put(d.err, "\r\x1b[K"+strings.Repeat("\x1b[1A\x1b[K", d.drawn-1))
	d.drawn = 0
}

// redraw brings the live rows up to date.
func (d *display) redraw() {
	if d.width == nil {
		return
	}
	d.clear()
	var rows []string
	for _, row := range []string{d.progress, d.status} {
		if row != "" {
			rows = append(rows, cutTo(row, d.width()-1)) // a full row would wrap
		}
	}
	d.put(d.err, strings.Join(rows, "\n"))
	d.drawn = len(rows)
}

// cutTo shortens a text to so many characters.
func cutTo(text string, width int) string {
	runes := []rune(text)
	return string(runes[:min(len(runes), width)])
}

// prefix is what stands before a worker's lines.
func prefix(worker int, colour bool) string {
	if !colour {
		return fmt.Sprintf("[%d] ", worker)
	}
	colours := []int{36, 33, 32, 35, 34, 31} // cyan, yellow, green, magenta, blue, red
	return fmt.Sprintf("\x1b[%dm[%d]\x1b[0m ", colours[worker%len(colours)], worker)
}
