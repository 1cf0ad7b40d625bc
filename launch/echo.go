// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// echoes finds out which lines only repeat an error that has been said. What is wrong with a job is wrong for all workers:
// each of them finds the same mistake, or is told by the rendezvous why the job stops, and prints it. It should be read once,
// from the first that says it, from the worker that is to blame, or from the launcher.
type echoes struct {
	reason []string       // why the job stops; no lines: it does not
	blamed []int          // who is to blame for that
	said   []saying       // the last errors of ours, oldest first
	within map[stream]int // streams in which an echo goes on, and of whom; -1: of the rendezvous
	heard  map[int]bool   // workers that repeated something
}

// saying is an error of ours, and who said it first.
type saying struct {
	worker int
	text   string
}

// stream is one of a worker's two.
type stream struct{ worker, number int }

const (
	// shortest is the length from which on a line is hardly equal to another by chance.
	shortest = 16
	// remembered is how many errors may be on their way at the same time.
	remembered = 32
)

// stackLine matches what Go and pkg/errors print of a stack.
var stackLine = regexp.MustCompile(`^(\t.*|goroutine \d+ \[.*\]:|created by .*|panic: .*|exit status \d+|[\w\-./]+\.[\w.()*\[\]·]+(\(.*\))?|)$`)

func newEchoes() echoes {
	return echoes{within: map[stream]int{}, heard: map[int]bool{}}
}

// set says why the job stops, and who is to blame.
func (e *echoes) set(blamed []int, reason string) {
	if len(e.reason) == 0 {
		e.blamed, e.reason = blamed, cleanLines(strings.TrimPrefix(reason, "epl: "))
	}
}

// is tells whether a line, which is clean, is an echo. tails are the last lines of each worker.
func (e *echoes) is(l line, text string, tails map[int][]string) bool {
	at := stream{l.Worker, l.Stream}
	if of, found := e.find(l.Worker, text); found {
		e.within[at], e.heard[l.Worker] = of, true
		return true
	}
	of, within := e.within[at]
	if within && (stackLine.MatchString(text) || slices.Contains(tails[of], text) || of < 0 && slices.Contains(e.reason, text)) {
		return true
	}
	delete(e.within, at)
	return false
}

// find returns whose words a worker repeats.
func (e *echoes) find(worker int, text string) (of int, found bool) {
	if len(e.reason) > 0 && len(e.reason[0]) >= shortest && strings.Contains(text, e.reason[0]) {
		return -1, !slices.Contains(e.blamed, worker)
	}
	start := strings.Index(text, "epl: ")
	if start < 0 || len(text)-start < shortest {
		return 0, false
	}
	text = text[start:]
	if i := slices.IndexFunc(e.said, func(s saying) bool { return s.text == text }); i >= 0 {
		return e.said[i].worker, worker != e.said[i].worker
	}
	e.said = append(e.said[max(0, len(e.said)+1-remembered):], saying{worker, text})
	return 0, false
}

// workers returns those that repeated something, in order.
func (e *echoes) workers() []int { return slices.Sorted(maps.Keys(e.heard)) }
