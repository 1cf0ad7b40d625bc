// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheReasonIsSaidOnceAndLast(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	status, stdout, stderr := test(t, Options{Workers: 3, Command: []string{"join", "fail"}, LogDir: logs, TaskLabel: "x"})
	last := fmt.Sprintf("epl-launch: the job stops because of worker 1; errors of others that only repeat the reason are not shown\nepl-launch: the last lines of worker 1:\n"+
		"[1] worker 1 of 3 joined\nepl-launch: worker 1 on %s exited with status 5; its log is %s\n",
		hostName(), filepath.Join(logs, "x", "worker-1.log"))
	if status != 5 || stderr != last {
		t.Errorf("status %d, stderr:\n%swant:\n%s", status, stderr, last)
	}
	if strings.Contains(stdout, "stops: ") {
		t.Errorf("others repeat it:\n%s", stdout)
	}
	for _, worker := range []int{0, 2} {
		text, err := os.ReadFile(filepath.Join(logs, "x", logName(worker)))
		if err != nil || !strings.Contains(string(text), "stops: epl: worker 1 ") {
			t.Errorf("worker %d was not told, or its log does not say so: %v\n%s", worker, err, text)
		}
	}
}

func TestAnErrorThatAllWorkersFindIsSaidOnce(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := test(t, Options{Workers: 3, Command: []string{"join", "disagree"}})
	if n := strings.Count(stdout, "do not agree on the end"); n != 1 || status != 7 {
		t.Errorf("status %d, said %d times:\n%s\n%s", status, n, stdout, stderr)
	}
}

func TestAWorkersOwnErrorIsItsLastWord(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := test(t, Options{Workers: 3, Command: []string{"join", "give up"}})
	last := "epl-launch: worker 1 on " + hostName() + " exited with status 5: worker 1 stopped: the disk is full: make room\n"
	if status != 5 || !strings.HasSuffix(stderr, last) {
		t.Errorf("status %d:\n%s", status, stderr)
	}
	if strings.Contains(stdout, "[0] stops") || strings.Contains(stdout, "[2] stops") {
		t.Errorf("others repeat it:\n%s", stdout)
	}
}

func TestEchoesAreToldFromNews(t *testing.T) {
	const reason = "epl: worker 1 (a, pid 7) is gone:\n  detail one\n  detail two"
	for name, test := range map[string]struct {
		worker      int
		text, shown string
	}{
		"as it is":                     {0, "epl: worker 1 (a, pid 7) is gone:\n  detail one\n  detail two\nbye", "bye"},
		"in other words":               {0, "panic: Loop: failed: worker 1 (a, pid 7) is gone: [recovered]\nx", "x"},
		"with a stack":                 {0, "worker 1 (a, pid 7) is gone:\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/main.go:8 +0x1\ngithub.com/a/b.(*T).f\n\t/x\nsaved", "saved"},
		"from the worker whose it is":  {1, "epl: worker 1 (a, pid 7) is gone:", "epl: worker 1 (a, pid 7) is gone:"},
		"details without the reason":   {0, "  detail one", "  detail one"},
		"a stack of something else":    {0, "panic: other\n\ngoroutine 1 [running]:\nmain.main()", "panic: other||goroutine 1 [running]:|main.main()"},
		"a stack after something else": {0, "worker 1 (a, pid 7) is gone:\nnews\nmain.main()", "news|main.main()"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEchoes()
			if e.is(line{Worker: test.worker}, "worker 1 (a, pid 7) is gone:", nil) {
				t.Error("nothing has failed yet")
			}
			e.set([]int{1}, reason)
			e.set([]int{0}, "epl: what comes later is not the reason")
			var shown []string
			for _, text := range strings.Split(test.text, "\n") {
				if !e.is(line{Worker: test.worker, Stream: 2}, text, nil) {
					shown = append(shown, text)
				}
			}
			if got := strings.Join(shown, "|"); got != test.shown {
				t.Errorf("shown: %q, want %q", got, test.shown)
			}
		})
	}
}

func TestLastLinesAreShownAgainOnlyIfTheyAreOutOfView(t *testing.T) {
	for _, others := range []int{inView, inView + 1} {
		var out bytes.Buffer
		d := terminal(&out, 80)
		d.line(line{Worker: 1, Stream: 1, Text: "the end"})
		for range others {
			d.line(line{Worker: 0, Stream: 2, Text: "x"})
		}
		d.last(1, "worker 1 failed")
		if got, want := strings.Count(out.String(), "the end"), 1+others-inView; got != want {
			t.Errorf("after %d lines of others it was shown %d times, want %d", others, got, want)
		}
		if !strings.HasSuffix(out.String(), "epl-launch: worker 1 failed\n") {
			t.Errorf("got %q", out.String())
		}
	}
}

func TestErrorsAreBrokenBetweenWordsOnATerminal(t *testing.T) {
	var out bytes.Buffer
	d := terminal(&out, 24)
	d.line(line{Worker: 3, Stream: 2, Text: "12:00 epl: 6 devices do not divide into /a/very/long/path/to/a/file; use 4"})
	d.line(line{Worker: 3, Stream: 2, Text: "other lines are for programs to format"})
	d.note("worker 1 was killed by a signal:\nno details")
	want := "\x1b[35m[3]\x1b[0m 12:00 epl: 6 devices\n    do not divide into\n    /a/very/long/path/to/a/file;\n    use 4\n" +
		"\x1b[35m[3]\x1b[0m other lines are for programs to format\n" +
		"epl-launch: worker 1 was\n  killed by a signal:\n  no details\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	d = newDisplay(Options{Stdout: &out, Stderr: &out})
	long := "epl: " + strings.Repeat("word ", 100)
	if d.line(line{Worker: 0, Stream: 2, Text: long}); out.String() != "[0] "+long+"\n" {
		t.Errorf("what is no terminal gets whole lines:\n%s", out.String())
	}
}

func TestAnErrorOfOursIsSaidByTheFirstWorkerThatFindsIt(t *testing.T) {
	var out bytes.Buffer
	d := newDisplay(Options{Stdout: &out, Stderr: &out})
	for _, l := range []line{
		{Worker: 1, Text: "12:00 epl: the key x is unknown\x1b[K; it may be y"}, {Worker: 1, Text: "a detail"},
		{Worker: 0, Text: "12:01 epl: the key x is unknown; it may be y"}, {Worker: 0, Text: "a detail"}, {Worker: 0, Text: "\t/main.go:7"},
		{Worker: 0, Text: "a detail of something else"},
		{Worker: 2, Text: "epl: the key z is unknown; it may be y"}, {Worker: 2, Text: "a detail"},
		{Worker: 1, Text: "epl: the key x is unknown; it may be y"},
		{Worker: 0, Text: "the same"}, {Worker: 1, Text: "the same"},
	} {
		l.Stream = 2
		d.line(l)
	}
	want := "[1] 12:00 epl: the key x is unknown; it may be y\n[1] a detail\n[0] a detail of something else\n" +
		"[2] epl: the key z is unknown; it may be y\n[2] a detail\n[1] epl: the key x is unknown; it may be y\n[0] the same\n[1] the same\n"
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", out.String(), want)
	}
}
