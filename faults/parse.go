// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// The variables that a job's faults come from.
const (
	// Env has the faults of a job, see [Grammar].
	Env = "EPL_FAULTS"
	// EnvSlow slows devices down: a factor for each, by rank. "20,10" is as "slow:rank=0,factor=20,generation=all; slow:rank=1,factor=10,generation=all".
	EnvSlow = "EPL_SLOW"
)

// Grammar is how faults are written.
const Grammar = `faults are written as "KIND:KEY=VALUE,...; KIND:...":
  kill:rank=R,step=N           the worker of rank R ends before its N-th step, as by kill -9
  kill:rank=R,save=N           it ends while it writes its N-th checkpoint
  stop:rank=R,step=N           it stops before its N-th step, as by kill -STOP: it is there, and answers nothing
  slow:rank=R,factor=X         the device of rank R takes X times as long for what it computes as the cost model says of a usual core
  delay:rank=R,to=S,time=50ms  what the worker of rank R sends to that of rank S travels 50 ms longer
  corrupt:rank=R,to=S          a bit of what it sends there changes on its way
  cut:rank=R,to=S              the connections between them break
  flip:rank=R,step=N           a bit of a variable changes in the memory of rank R after its N-th step; variable=PATH says of which
  nan:rank=R,step=N            a gradient that rank R computes in its N-th step is not a number
  disk-full:rank=R             writing its next checkpoint fails: no space left on the device
  disk-error:rank=R            writing its next checkpoint fails: input/output error
slow, delay, corrupt and cut begin with the step that step=N says, disk-full and disk-error with save=N (1 without it). Ranks are those of devices; steps and saves are
counted from 1, since the workers were started. A fault happens in the first generation of workers only; generation=N (2: after the first restart) or generation=all says otherwise`

// The kinds of faults.
const (
	Kill      = "kill"
	Stop      = "stop"
	Slow      = "slow"
	Delay     = "delay"
	Corrupt   = "corrupt"
	Cut       = "cut"
	Flip      = "flip"
	NaN       = "nan"
	DiskFull  = "disk-full"
	DiskError = "disk-error"
)

// AllGenerations is the generation of a fault that happens in each.
const AllGenerations = 0

// Fault is something that is to go wrong.
type Fault struct {
	Kind string
	// Rank is a device of the worker that it happens to. To is one of the worker at the other end of a connection.
	Rank, To int
	// Step and Save say when, counted from 1; 0: not by that.
	Step, Save int
	Factor     float64
	Time       time.Duration
	Variable   string // its path; "": any
	Generation int    // of workers, counted from 1
}

// kinds says which keys each kind needs, and which it may have. Those with a bar are alternatives.
var kinds = []struct{ name, needs, may string }{
	{Kill, "rank step|save", "generation"},
	{Stop, "rank step", "generation"},
	{Slow, "rank factor", "step generation"},
	{Delay, "rank to time", "step generation"},
	{Corrupt, "rank to", "step generation"},
	{Cut, "rank to", "step generation"},
	{Flip, "rank step", "variable generation"},
	{NaN, "rank step", "generation"},
	{DiskFull, "rank", "save generation"},
	{DiskError, "rank", "save generation"},
}

// keys read and write the values of keys, in the order of [Fault.String].
var keys = []struct {
	name string
	set  func(f *Fault, value string) bool
	get  func(f Fault) string // "": it has none
}{
	{"rank", number(func(f *Fault) *int { return &f.Rank }, 0), func(f Fault) string { return strconv.Itoa(f.Rank) }},
	{"to", number(func(f *Fault) *int { return &f.To }, 0), func(f Fault) string {
		if !f.Link() {
			return ""
		}
		return strconv.Itoa(f.To)
	}},
	{"step", number(func(f *Fault) *int { return &f.Step }, 1), func(f Fault) string { return unlessZero(f.Step) }},
	{"save", number(func(f *Fault) *int { return &f.Save }, 1), func(f Fault) string { return unlessZero(f.Save) }},
	{"factor", func(f *Fault, value string) bool {
		x, err := strconv.ParseFloat(value, 64)
		f.Factor = x
		return err == nil && x > 0 && x <= maxFactor
	}, func(f Fault) string {
		if f.Factor == 0 {
			return ""
		}
		return strconv.FormatFloat(f.Factor, 'g', -1, 64)
	}},
	{"time", func(f *Fault, value string) bool {
		d, err := time.ParseDuration(value)
		f.Time = d
		return err == nil && d > 0
	}, func(f Fault) string {
		if f.Time == 0 {
			return ""
		}
		return f.Time.String()
	}},
	{"variable", func(f *Fault, value string) bool {
		f.Variable = value
		return value != ""
	}, func(f Fault) string { return f.Variable }},
	{"generation", func(f *Fault, value string) bool {
		if value == "all" {
			f.Generation = AllGenerations
			return true
		}
		return number(func(f *Fault) *int { return &f.Generation }, 1)(f, value)
	}, func(f Fault) string {
		switch f.Generation {
		case AllGenerations:
			return "all"
		case 1:
			return ""
		}
		return strconv.Itoa(f.Generation)
	}},
}

// maxFactor is the largest factor that devices are slowed down by.
const maxFactor = 1e6

// number reads a number of at least so much.
func number(at func(*Fault) *int, least int) func(*Fault, string) bool {
	return func(f *Fault, value string) bool {
		n, err := strconv.Atoi(value)
		*at(f) = n
		return err == nil && n >= least && n <= math.MaxInt32
	}
}

func unlessZero(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// String writes a fault as [Parse] reads it.
func (f Fault) String() string {
	var words []string
	for _, k := range keys {
		if value := k.get(f); value != "" {
			words = append(words, k.name+"="+value)
		}
	}
	return f.Kind + ":" + strings.Join(words, ",")
}

// Link tells that it happens on connections between two workers.
func (f Fault) Link() bool { return f.Kind == Delay || f.Kind == Corrupt || f.Kind == Cut }

// disk tells that it happens when files are written.
func (f Fault) disk() bool { return f.Save > 0 }

// Parse reads faults. Errors show how they are written.
func Parse(text string) (all []Fault, err error) {
	for words := range strings.SplitSeq(text, ";") {
		if words = strings.TrimSpace(words); words == "" {
			continue
		}
		f, err := parse(words)
		if err != nil {
			return nil, errors.Errorf("epl: %s: %q: %v; %s", Env, words, err, Grammar)
		}
		all = append(all, f)
	}
	return all, nil
}

func parse(words string) (f Fault, err error) {
	name, rest, _ := strings.Cut(words, ":")
	f.Kind, f.Generation = strings.TrimSpace(name), 1
	at := slices.IndexFunc(kinds, func(k struct{ name, needs, may string }) bool { return k.name == f.Kind })
	if at < 0 {
		var names []string
		for _, k := range kinds {
			names = append(names, k.name)
		}
		return f, errors.Errorf("there is no fault %q; there are %s", f.Kind, strings.Join(names, ", "))
	}
	kind := kinds[at]
	given := map[string]bool{}
	for word := range strings.SplitSeq(rest, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		name, value, _ := strings.Cut(word, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		known := strings.FieldsFunc(kind.needs+" "+kind.may, func(r rune) bool { return r == ' ' || r == '|' })
		if !slices.Contains(known, name) {
			return f, errors.Errorf("%s has no key %q; it has %s", f.Kind, name, strings.Join(known, ", "))
		}
		if given[name] {
			return f, errors.Errorf("%s is given twice", name)
		}
		given[name] = true
		for _, k := range keys {
			if k.name == name && !k.set(&f, value) {
				return f, errors.Errorf("%s=%s is not understood", name, value)
			}
		}
	}
	for need := range strings.FieldsSeq(kind.needs) {
		count := 0
		for name := range strings.SplitSeq(need, "|") {
			if given[name] {
				count++
			}
		}
		switch {
		case count == 0:
			return f, errors.Errorf("%s needs %s", f.Kind, strings.ReplaceAll(need, "|", " or "))
		case count > 1:
			return f, errors.Errorf("%s has one of %s, not both", f.Kind, strings.ReplaceAll(need, "|", " and "))
		}
	}
	if f.Link() && f.Rank == f.To {
		return f, errors.Errorf("rank %d has no connection to itself", f.Rank)
	}
	switch { // when it begins
	case f.Kind == DiskFull || f.Kind == DiskError:
		f.Save = max(f.Save, 1)
	case f.Kind != Kill:
		f.Step = max(f.Step, 1)
	}
	return f, nil
}

// ParseSlow reads EPL_SLOW: a number for each of so many devices.
func ParseSlow(text string, devices int) (all []Fault, err error) {
	if text = strings.TrimSpace(text); text == "" {
		return nil, nil
	}
	words := strings.Split(text, ",")
	for rank, word := range words {
		x, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || !(x >= 0 && x <= maxFactor) {
			return nil, errors.Errorf("epl: %s=%s: %q is not how many times as long a device takes; write a number of at least 0, such as 20, for each device", EnvSlow, text, word)
		}
		if x > 0 {
			all = append(all, Fault{Kind: Slow, Rank: rank, Step: 1, Factor: x, Generation: AllGenerations})
		}
	}
	if len(words) != devices {
		return nil, errors.Errorf("epl: %s=%s: there are %d numbers and %d devices; write one for each, by rank", EnvSlow, text, len(words), devices)
	}
	return all, nil
}

// Check refuses faults of ranks that a job does not have. worker is the worker of a rank.
func Check(all []Fault, devices int, worker func(rank int) int) error {
	for _, f := range all {
		if most := max(f.Rank, f.To); most >= devices {
			return errors.Errorf("epl: %s: %q: there is no rank %d; the job has %d devices, ranks 0 to %d", Env, f, most, devices, devices-1)
		}
		if f.Link() && worker(f.Rank) == worker(f.To) {
			return errors.Errorf("epl: %s: %q: ranks %d and %d are devices of the same worker, which has no connection to itself; use ranks of two workers", Env, f, f.Rank, f.To)
		}
	}
	return nil
}

// In are the faults of a generation of workers.
func In(all []Fault, generation int) []Fault {
	return slices.DeleteFunc(all, func(f Fault) bool { return f.Generation != AllGenerations && f.Generation != generation })
}

// Text writes faults as [Parse] reads them.
func Text(all []Fault) string {
	var words []string
	for _, f := range all {
		words = append(words, fmt.Sprint(f))
	}
	return strings.Join(words, "; ")
}
