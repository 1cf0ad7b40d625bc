// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package doctor checks whether a machine, and the machines of a job, have what EPL needs.
//
// What goes in: a [System], which is this machine ([Here]) or one of a test. What comes out: [Finding]s, each with one sentence and, where something
// is wrong, the line that mends it. [Machine] checks one machine, [Job] several and what connects them. Nothing is changed on any of them.
package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/easyparallel/epl/internal/words"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // EPL works, but slower, or not everywhere
	Problem Level = "problem" // something will fail
)

// Finding is what one check found.
type Finding struct {
	Host  string `json:"host,omitempty"` // of a job
	Check string `json:"check"`
	Level Level  `json:"level"`
	Says  string `json:"says"`          // one sentence
	Fix   string `json:"fix,omitempty"` // the line that mends it
}

func ok(format string, args ...any) Finding {
	return Finding{Level: OK, Says: fmt.Sprintf(format, args...)}
}

func warning(fix, format string, args ...any) Finding {
	return Finding{Level: Warning, Says: fmt.Sprintf(format, args...), Fix: fix}
}

func problem(fix, format string, args ...any) Finding {
	return Finding{Level: Problem, Says: fmt.Sprintf(format, args...), Fix: fix}
}

// checks are all checks of a machine, in the order in which they are reported.
var checks = []struct {
	name string
	run  func(*System) Finding
}{
	{"go", (*System).goCommand},
	{"simd", (*System).simd},
	{"cores", (*System).cores},
	{"numa", (*System).numa},
	{"memory", (*System).memory},
	{"shared memory", (*System).sharedMemory},
	{"/dev/shm", (*System).devShm},
	{"open files", (*System).openFiles},
	{"processes", (*System).processes},
	{"locked memory", (*System).lockedMemory},
	{"loopback", (*System).loopback},
	{"port", (*System).port},
	{"clock", (*System).clock},
	{"settings", (*System).settings},
	{"job", (*System).job},
	{"ssh", (*System).ssh},
	{"mpi", (*System).mpi},
	{"slurm", (*System).slurm},
	{"kubernetes", (*System).kubernetes},
	{"gpu", (*System).gpu},
	{"gpu plugin", (*System).plugin},
}

// Machine runs all checks of a machine.
func Machine(s *System) (all []Finding) {
	for _, c := range checks {
		f := c.run(s)
		f.Check = c.name
		all = append(all, f)
	}
	return all
}

// Count is how many findings have a level.
func Count(all []Finding, level Level) (n int) {
	for _, f := range all {
		if f.Level == level {
			n++
		}
	}
	return n
}

// Text writes findings for people.
func Text(w io.Writer, all []Finding) error {
	width := 0
	name := func(f Finding) string { return strings.TrimPrefix(f.Host+": "+f.Check, ": ") }
	for _, f := range all {
		width = max(width, len(name(f)))
	}
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%-7s  %-*s  %s\n", f.Level, width, name(f), f.Says)
		if f.Fix != "" {
			fmt.Fprintf(&b, "%-7s  %-*s  fix: %s\n", "", width, "", f.Fix)
		}
	}
	fmt.Fprintf(&b, "%s, %s, %s\n", words.Count(len(all), "finding"), words.Count(Count(all, Warning), "warning"), words.Count(Count(all, Problem), "problem"))
	_, err := io.WriteString(w, b.String())
	return err
}

// JSON writes findings for programs.
func JSON(w io.Writer, all []Finding) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Warnings int       `json:"warnings"`
		Problems int       `json:"problems"`
		Findings []Finding `json:"findings"`
	}{Count(all, Warning), Count(all, Problem), all})
}
