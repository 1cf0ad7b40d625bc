// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/easyparallel/epl/rendezvous"
)

func TestOutputIsCutIntoLines(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"nothing":                         {"", ""},
		"lines":                           {"a\n\nb\n", "a||b|"},
		"no end":                          {"a\nb", "a|b|"},
		"ends of Windows":                 {"a\r\nb\r\n", "a|b|"},
		"a progress bar":                  {"\r10%\r20%\rdone\n", "done|"},
		"one that never ends its line":    {"\r10%\r20%", "20%|"},
		"one that ends with a return":     {"10%\r20%\r", "20%|"},
		"a long line":                     {strings.Repeat("x", longestLine+3) + "\ny\n", strings.Repeat("x", longestLine) + "|xxx|y|"},
		"bytes that are not text survive": {"\xff\x00\n", "\xff\x00|"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(test.in), iotest.OneByteReader(strings.NewReader(test.in))} {
				var got strings.Builder
				cutLines(r, func(text string, update bool) {
					if !update {
						got.WriteString(text + "|")
					}
				})
				if got.String() != test.want {
					t.Errorf("got %.200q", got.String())
				}
			}
		})
	}
}

func TestProgressIsReportedAsItComes(t *testing.T) {
	var got []string
	read, write := io.Pipe()
	go func() {
		for _, part := range []string{"start\n", "\r10%", "\r20%", "\n"} {
			io.WriteString(write, part)
		}
		write.Close()
	}()
	cutLines(read, func(text string, update bool) { got = append(got, fmt.Sprintf("%s %v", text, update)) })
	// Once when it has been read, and once more when the next one begins.
	if want := "start false, 10% true, 10% true, 20% true, 20% false"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
}

// terminal returns a display on a terminal of the given width.
func terminal(out *bytes.Buffer, width int) *display {
	d := newDisplay(Options{Stdout: out, Stderr: out})
	for _, s := range []*screen{d.out, d.err} {
		s.terminal, s.colour = true, true
	}
	d.together = true
	d.width = func() int { return width }
	return d
}

func TestATerminalShowsColoursAndWhatHappensNow(t *testing.T) {
	var out bytes.Buffer
	d := terminal(&out, 20)
	d.setStatus("2 workers up and much more")
	d.line(line{Worker: 0, Stream: 1, Text: "hello"})
	d.line(line{Worker: 0, Stream: 1, Text: "50%", Update: true})
	d.line(line{Worker: 1, Stream: 2, Text: "\x1b[1mbold"})
	d.close()
	const status, clear = "2 workers up and mu", "\r\x1b[K"
	want := status + // cut to the terminal
		clear + "\x1b[36m[0]\x1b[0m hello\n" + status + // a line goes above it
		clear + "[0] 50%\n" + status + // progress has a row of its own
		clear + "\x1b[1A\x1b[K" + "\x1b[33m[1]\x1b[0m \x1b[1mbold\x1b[0m\n" + "[0] 50%\n" + status +
		clear + "\x1b[1A\x1b[K"
	if got := out.String(); got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestNoColoursWhereTheyAreNotWanted(t *testing.T) {
	var out bytes.Buffer
	d := newDisplay(Options{Stdout: &out, Stderr: &out, Environ: []string{"NO_COLOR=1"}})
	d.setStatus("never on a pipe")
	d.line(line{Worker: 1, Stream: 1, Text: "50%", Update: true})
	d.line(line{Worker: 1, Stream: 1, Text: "x"})
	d.close()
	if out.String() != "[1] x\n" {
		t.Errorf("got %q", out.String())
	}
}

// known is a crew of which only the status is asked.
type known struct {
	crew
	workers []rendezvous.WorkerStatus
}

func (k known) status() []rendezvous.WorkerStatus { return k.workers }

func TestTheStatusNamesWhoIsBusySilentOrGone(t *testing.T) {
	now := time.Now()
	d := &director{hosts: map[int]string{0: "a", 1: "a", 2: "a"}, running: 3, rates: map[int]*rate{}}
	if got, want := d.line(), "3 of 3 workers running"; got != want {
		t.Errorf("without a rendezvous: %q", got)
	}
	d.hub = known{workers: []rendezvous.WorkerStatus{
		{Index: 0, Joined: true, Step: 8, Samples: 80},
		{Index: 1, Joined: true, Step: 7, Busy: "compiling", Since: now.Add(-30 * time.Second)},
		{Index: 2, Joined: true, Step: 9, Silent: true, Seen: now.Add(-4 * time.Second)},
		{Index: 3, Joined: true, Left: true},
		{Index: 4},
	}}
	if got, want := d.line(), "3 of 5 workers up · step 7 · [1] compiling for 30s · [2] silent for 4s · [3] finished"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestGPUsAreDealtToTheWorkersOfAMachine(t *testing.T) {
	for _, test := range []struct {
		visible       string
		workers, each int
		want          string
		note          bool
	}{
		{"0,1,2,3", 2, 2, "[[0 1] [2 3]]", false},
		{"0,1,2,3", 2, 1, "[[0] [1]]", false},
		{"GPU-a,GPU-b", 2, 0, "[[GPU-a] [GPU-b]]", false},
		{"0,1,2", 2, 0, "[[0] [1]]", false},
		{"0,-1,2", 1, 0, "[[0]]", false},
		{"", 2, 2, "[[] []]", false},
		{"-1", 2, 2, "[[] []]", false},
		{"0", 2, 2, "[[] []]", true},
		{"0", 2, 0, "[[] []]", true},
	} {
		slots, note := dealGPUs(gpus([]string{envVisible + "=" + test.visible}, t.TempDir()), test.workers, test.each)
		if fmt.Sprint(slots) != test.want || (note != "") != test.note {
			t.Errorf("%+v: got %v, %q", test, slots, note)
		}
	}
}
