// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"slices"
	"strings"
	"testing"
)

func TestAFailureThatRepeatsItselfEndsAnElasticJob(t *testing.T) {
	failed := func(step int64, why string) generation {
		return generation{Failed: true, Step: step, Loaded: 4, Error: alike(why), Reason: why, Batches: 2 * step}
	}
	killed := func(step int64, worker int) generation {
		g := failed(step, "was killed by signal 9 (killed)")
		g.Killed, g.Worker = true, worker
		return g
	}
	for name, test := range map[string]struct {
		past []generation
		want string
	}{
		"one failure":                    {[]generation{failed(7, "a")}, ""},
		"the same twice":                 {[]generation{failed(7, "pid 12: a"), failed(7, "pid 13: a")}, "2 times in a row with the same error, after step 7 (the next batch of the data is number 14,"},
		"another step":                   {[]generation{failed(7, "a"), failed(8, "a")}, ""},
		"another error":                  {[]generation{failed(7, "a"), failed(7, "b")}, ""},
		"not in a row":                   {[]generation{failed(7, "a"), {Step: 7, Reason: "more workers"}, failed(7, "a")}, ""},
		"before the first step":          {[]generation{{Failed: true, Error: "a"}, {Failed: true, Error: "a"}}, "before the first step: "},
		"killed twice":                   {[]generation{killed(7, 1), killed(7, 1)}, ""},
		"killed three times":             {[]generation{killed(7, 1), killed(7, 1), killed(7, 1)}, "3 times"},
		"others are killed":              {[]generation{killed(7, 1), killed(7, 0), killed(7, 1)}, ""},
		"killed before it took any step": {[]generation{killed(4, 1), killed(4, 1), killed(4, 1)}, ""},
	} {
		if got := loops(test.past); test.want == "" != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAnElasticJobOfAnyProgramIsStartedAnew(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := test(t, Options{Workers: 2, MinWorkers: 2, MaxRestarts: 5, LogDir: t.TempDir(), Command: []string{"sh", "-c",
		`echo generation $EPL_GENERATION of $EPL_NUM_WORKERS; test $EPL_GENERATION = 3 || exit 1$EPL_GENERATION`}})
	if status != 0 || strings.Count(stdout, "generation 3 of 2\n") != 2 || strings.Count(stderr, "goes on from the beginning: no checkpoint was saved") != 2 {
		t.Errorf("status %d: %s\n%s", status, stdout, stderr)
	}
	status, _, stderr = test(t, Options{Workers: 1, MinWorkers: 1, MaxRestarts: 2, Command: []string{"sh", "-c", `exit 1$EPL_GENERATION`}})
	if status != 13 || !strings.Contains(stderr, "the job ends: the workers were started anew 2 times without a new checkpoint (--max_restarts)") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// Two workers are blamed for a connection between them that broke: neither can be said to be the one, and one of them goes on if there is nobody else.
func TestBothEndsOfABrokenConnectionAreNamed(t *testing.T) {
	var out strings.Builder
	d := &director{display: newDisplay(Options{Stdout: &out, Stderr: &out}), hosts: map[int]string{0: "a", 1: "b", 2: "c"},
		exits: map[int]exit{0: {Worker: 0, Code: 1}, 2: {Worker: 2, Code: 1}}, failure: "epl: the connection broke", blamed: []int{0, 2}}
	if got, want := d.reason(), "worker 0 on a and worker 2 on c exited with status 1: the connection broke"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	for _, c := range []struct{ members, lost []int }{{[]int{5, 6, 7}, []int{5, 7}}, {[]int{5, 7}, []int{5}}} {
		g := generation{Members: c.members}
		d.blamed = []int{0, len(c.members) - 1}
		if g.end(d); !slices.Equal(g.Lost, c.lost) {
			t.Errorf("of seats %v, %v are lost, not %v", c.members, g.Lost, c.lost)
		}
	}
	d.exits[2] = exit{Worker: 2, Signal: 9}
	d.blamed = []int{0, 2}
	if got, want := d.reason(), "worker 0 on a exited with status 1: the connection broke"; got != want {
		t.Errorf("they ended in different ways: %q, not %q", got, want)
	}
}
