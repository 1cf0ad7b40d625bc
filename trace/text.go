// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pkg/errors"
)

// WriteText writes the report as a table and the step as a chart of letters, at most width columns wide where the
// labels leave room for that.
func (s *Step) WriteText(w io.Writer, width int) error {
	r := s.Report()
	var b strings.Builder
	fmt.Fprintln(&b, s.title())
	for _, line := range []string{s.summary(r), s.clocks()} {
		if line != "" {
			fmt.Fprintln(&b, line)
		}
	}
	b.WriteString("\n")
	r.table(&b, s.Pipeline)
	if len(r.Traffic) > 0 {
		b.WriteString("\n")
		r.traffic(&b)
	}
	b.WriteString("\n")
	s.letters(&b, r, width)
	_, err := io.WriteString(w, b.String())
	return errors.Wrap(err, "epl: the timeline as text")
}

// table writes one line per device, and one for all.
func (r *Report) table(b *strings.Builder, p Pipeline) {
	rows := [][]string{{"", "busy", "", "waiting", "", "idle", "", "communication", "exposed"}}
	for _, line := range r.rows(p) {
		row := []string{line.Label}
		for _, d := range []time.Duration{line.T.Busy, line.T.Waiting, line.T.Idle} {
			row = append(row, duration(d), share(d, line.Span))
		}
		rows = append(rows, append(row, duration(line.T.Communication), duration(line.T.Exposed)))
	}
	align(b, rows, 2, 4, 6)
}

// traffic writes one line per kind of communication.
func (r *Report) traffic(b *strings.Builder) {
	rows := [][]string{{"communication", "calls", "bytes", "time", "exposed", "GB/s"}}
	for _, t := range r.Traffic {
		rows = append(rows, []string{plain(t.Op), strconv.Itoa(t.Calls), bytesText(t.Bytes), duration(t.Time), duration(t.Exposed), digits(t.Rate())})
	}
	align(b, rows)
}

// align writes rows with their first column to the left and the others to the right; close ones follow the column before.
func align(b *strings.Builder, rows [][]string, close ...int) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		line := row[0] + strings.Repeat(" ", width[0]-utf8.RuneCountInString(row[0]))
		for i, cell := range row[1:] {
			space := 2
			if slices.Contains(close, i+1) {
				space = 1
			}
			line += strings.Repeat(" ", space+width[i+1]-utf8.RuneCountInString(cell)) + cell
		}
		fmt.Fprintln(b, line)
	}
}

// letters are how events look in a chart of letters: F3--- is the forward of micro-batch 3. What a step does not have
// is not explained below its chart.
var letters = []struct {
	class       string // as in the picture
	first, rest byte
	text        string
}{
	{Forward, 'F', '-', "F forward"}, {Backward, 'B', '=', "B backward"}, {Weights, 'W', '~', "W gradients of weights"},
	{Instance, 'I', '=', "I forward and backward"}, {Accumulate, '+', '+', "+ accumulate"}, {Apply, 'A', ':', "A apply"},
	{"other", '#', '#', "# other work"}, {"wait", '.', '.', ". waiting"}, {"data", '_', '_', "_ waiting for data"},
	{"launch", '>', '>', "> starting communication"},
}

// letters writes a line per device.
func (s *Step) letters(b *strings.Builder, r *Report, width int) {
	events := s.Events()
	left := 0
	for _, d := range r.Devices {
		left = max(left, utf8.RuneCountInString(d.label(s.Pipeline)))
	}
	columns := max(width-left-3, 20)
	own := slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return e.Lane > 0 })
	start, end := bounds(events)
	if span := end.Sub(start); span > 0 {
		for _, d := range r.Devices {
			label := d.label(s.Pipeline)
			fmt.Fprintf(b, "%s%s |%s|\n", label, strings.Repeat(" ", left-utf8.RuneCountInString(label)),
				cells(slices.DeleteFunc(slices.Clone(own), func(e Event) bool { return e.Device != d.Device }), start, span, columns))
		}
		fmt.Fprintf(b, "%s  0%*s\n\n", strings.Repeat(" ", left), columns-1, duration(span))
	}
	var means []string
	for _, l := range letters {
		if slices.ContainsFunc(own, func(e Event) bool { return e.class() == l.class && e.End.After(e.Start) }) {
			means = append(means, l.text)
		}
	}
	if slices.ContainsFunc(own, func(e Event) bool { return e.Task.inPipeline() }) {
		means = append(means, "numbers are micro-batches")
	}
	fmt.Fprintf(b, "%s; blank is idle\n", strings.Join(means, ", "))
}

// cells draws the events of a device: a column shows what took most of its time.
func cells(events []Event, start time.Time, span time.Duration, columns int) string {
	most := make([]time.Duration, columns)
	shown := make([]*Event, columns)
	at := func(column int) time.Duration {
		return time.Duration(float64(span) * float64(column) / float64(columns))
	}
	for i := range events {
		from, to := events[i].Start.Sub(start), events[i].End.Sub(start)
		first := min(int(float64(from)/float64(span)*float64(columns)), columns-1)
		for c := first; c < columns && at(c) < to; c++ {
			if took := min(to, at(c+1)) - max(from, at(c)); took > most[c] && took > (at(c+1)-at(c))/3 {
				most[c], shown[c] = took, &events[i]
			}
		}
	}
	line := make([]byte, 0, columns)
	for c := 0; c < columns; {
		e, n := shown[c], 1
		for ; e != nil && c+n < columns && shown[c+n] != nil && shown[c+n].Kind == e.Kind && shown[c+n].Task == e.Task; n++ {
		}
		line = append(line, box(e, n)...)
		c += n
	}
	return string(line)
}

// box draws an event in n columns.
func box(e *Event, n int) string {
	if e == nil {
		return strings.Repeat(" ", n)
	}
	for _, l := range letters {
		if l.class != e.class() {
			continue
		}
		text := string(l.first)
		if e.Task.passes() && e.Task.Micro >= 0 {
			if number := strconv.Itoa(e.Task.Micro); len(number) < n {
				text += number
			}
		}
		return text + strings.Repeat(string(l.rest), n-len(text))
	}
	return strings.Repeat("?", n)
}
