package launch

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pkg/errors"
	"golang.org/x/term"
)

// lastLines is how many lines of the worker that failed are shown at the end.
const lastLines = 20

// display shows what the workers print, each line behind its worker's index, and below it on a terminal what they are
// doing now. It also writes the logs, and remembers the last lines.
type display struct {
	out, err screen
	width    func() int // of the terminal; nil: there is none for live rows

	mu       sync.Mutex
	logs     map[int]*os.File
	tails    map[int][]string
	status   string // the live rows: about the job, and of a worker's progress bar
	progress string
	drawn    int // how many rows stand there
}

// screen is where one of the streams goes.
type screen struct {
	io.Writer
	colour bool
}

// newDisplay shows on the streams of the options.
func newDisplay(o Options) *display {
	noColour, _ := o.lookup("NO_COLOR")
	terminal, _ := o.lookup("TERM")
	live := !o.plain && terminal != "dumb"
	colour := live && noColour == ""
	d := &display{
		out: screen{o.Stdout, colour && isTerminal(o.Stdout)}, err: screen{o.Stderr, colour && isTerminal(o.Stderr)},
		logs: map[int]*os.File{}, tails: map[int][]string{},
	}
	if live && isTerminal(o.Stderr) {
		d.width = func() int {
			width, _, err := term.GetSize(int(o.Stderr.(*os.File).Fd()))
			if err != nil || width < 10 {
				return 80
			}
			return width
		}
	}
	return d
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// openLogs makes a log for each of the workers. A run with the same label goes on where the last one ended.
func (d *display) openLogs(directory string, first, count int) error {
	if err := os.MkdirAll(directory, 0o777); err != nil {
		return errors.Errorf("epl: cannot make the directory for logs: %v", err)
	}
	for worker := first; worker < first+count; worker++ {
		path, err := filepath.Abs(filepath.Join(directory, fmt.Sprintf("worker-%d.log", worker)))
		if err == nil {
			d.logs[worker], err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
		}
		if err != nil {
			return errors.Errorf("epl: cannot open the log of worker %d: %v", worker, err)
		}
	}
	return nil
}

// close removes the live rows and closes the logs.
func (d *display) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status, d.progress = "", ""
	d.clear()
	for _, log := range d.logs {
		log.Close()
	}
}

// line shows a line of a worker.
func (d *display) line(l line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.Update {
		d.progress = prefix(l.Worker, false) + plain(l.Text, false)
		d.redraw()
		return
	}
	text := plain(l.Text, false)
	if log := d.logs[l.Worker]; log != nil {
		fmt.Fprintln(log, text)
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
	end := "\n"
	if to.colour && strings.Contains(l.Text, "\x1b[") {
		end = "\x1b[0m\n" // a colour that was left on must not run into other workers' lines
	}
	io.WriteString(to, prefix(l.Worker, to.colour)+plain(l.Text, to.colour)+end)
	d.redraw()
}

// note shows something that the launcher has to say.
func (d *display) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	io.WriteString(d.err, "epl-launch: "+fmt.Sprintf(format, args...)+"\n")
	d.redraw()
}

// setStatus replaces the live row about the job.
func (d *display) setStatus(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if text != d.status {
		d.status = text
		d.redraw()
	}
}

// last shows the last lines of a worker, and how it ended.
func (d *display) last(worker int, how string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if log := d.logs[worker]; log != nil {
		how += "; its log is " + log.Name()
	}
	tail := d.tails[worker]
	if len(tail) == 0 {
		how += "; it printed nothing"
	} else {
		fmt.Fprintf(d.err, "epl-launch: the last lines of worker %d:\n", worker)
	}
	for _, text := range tail {
		io.WriteString(d.err, prefix(worker, d.err.colour)+text+"\n")
	}
	fmt.Fprintf(d.err, "epl-launch: %s\n", how)
}

// clear takes the live rows away, and leaves the cursor where they began.
func (d *display) clear() {
	if d.drawn == 0 {
		return
	}
	io.WriteString(d.err, "\r\x1b[K"+strings.Repeat("\x1b[1A\x1b[K", d.drawn-1))
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
	io.WriteString(d.err, strings.Join(rows, "\n"))
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
