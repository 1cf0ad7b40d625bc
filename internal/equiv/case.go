// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Case is one case of the equivalence fuzz: a program, and the plan, devices, settings and passes that it runs under. It is written as JSON, so that a case that failed can be
// run again, and made smaller.
type Case struct {
	// Kind says what the program is: "pipeline" and "split" train a model of this package, "stages" and "parts" one random program for a step.
	Kind  string
	Seed  uint64 // of the random program
	Model string `json:",omitempty"`

	Stages    int   `json:",omitempty"`
	PerDevice int   `json:",omitempty"` // stages that share a device
	Parts     []int `json:",omitempty"` // devices of each TaskGraph: split over so many, or, if negative, replicated
	Colocate  bool  `json:",omitempty"` // they share their devices
	Replicas  int
	Micro     int
	Strategy  string `json:",omitempty"`

	Settings Settings
	Passes   string
	Pins     uint64 `json:",omitempty"` // the seed of which weights are pinned to dims; 0: none
	Ops      int    `json:",omitempty"` // at most so many families of ops in each stage of a random program; 0: as many as are drawn
}

// Settings are those that must not change what is learned.
type Settings struct {
	MaxSplits, Communicators     int
	SparseAsDense, WithinMachine bool
	CheckEvery                   int    `json:",omitempty"`
	NaN                          string `json:",omitempty"` // "": the default
}

// Params are the settings as a configuration has them.
func (s Settings) Params() map[string]any {
	params := map[string]any{
		"communication.max_splits":               s.MaxSplits,
		"communication.num_communicators":        s.Communicators,
		"communication.sparse_as_dense":          s.SparseAsDense,
		"cluster.device_place_prefer_intra_node": s.WithinMachine,
		"reliability.check_every":                s.CheckEvery,
	}
	if s.NaN != "" {
		params["reliability.nan"] = s.NaN
	}
	return params
}

// String writes the case as [ParseCase] reads it.
func (c Case) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // it has only numbers and texts
	}
	return string(text)
}

// ParseCase reads a case.
func ParseCase(text string) (c Case, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("%q is no case: %w", text, err)
	}
	return c, nil
}

// Smaller are cases that are a little simpler than this one, the simplest first. Some may make no sense.
func (c Case) Smaller() (all []Case) {
	try := func(change func(*Case)) {
		s := c
		s.Parts = slices.Clone(c.Parts)
		if change(&s); s.String() != c.String() {
			all = append(all, s)
		}
	}
	try(func(s *Case) { s.Passes = "none" })
	try(func(s *Case) { s.Settings = Settings{MaxSplits: 1, Communicators: 1} })
	try(func(s *Case) { s.Pins = 0 })
	try(func(s *Case) { s.Replicas, s.Micro = 1, 1 })
	try(func(s *Case) { s.Replicas = 1 })
	try(func(s *Case) { s.Micro = 1 })
	try(func(s *Case) { s.Micro = max(c.Micro-1, 1) })
	try(func(s *Case) { s.Strategy, s.PerDevice = "", 0 })
	if c.Kind == "stages" || c.Kind == "parts" {
		for _, n := range []int{1, c.Ops / 2, c.Ops - 1, 8} {
			if n > 0 && (c.Ops == 0 || n < c.Ops) {
				try(func(s *Case) { s.Ops = n })
			}
		}
	}
	if c.Stages > 2 {
		try(func(s *Case) { s.Stages = max(2, c.PerDevice); s.Stages = min(s.Stages, c.Stages) })
		try(func(s *Case) { s.Stages -= max(1, c.PerDevice) })
	}
	for i, k := range c.Parts {
		if len(c.Parts) > 1 {
			try(func(s *Case) { s.Parts = slices.Delete(s.Parts, i, i+1) })
		}
		switch {
		case k > 1 && !c.Colocate:
			try(func(s *Case) { s.Parts[i] = 1 })
			try(func(s *Case) { s.Parts[i]-- })
		case k < -1 && !c.Colocate:
			try(func(s *Case) { s.Parts[i]++ })
		}
	}
	passes := strings.Split(c.Passes, ",")
	for i := 1; i < len(passes); i++ {
		try(func(s *Case) { s.Passes = strings.Join(slices.Delete(slices.Clone(passes), i, i+1), ",") })
	}
	return all
}
