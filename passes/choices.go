// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/shard"
)

// Choices are what a plan says about single ops and variables of a program. Passes apply them. Ops are named by their index in main,
// of the program as the pass gets it; variables as by [ir.Program.VariableNames].
type Choices struct {
	TaskGraphs *TaskGraphChoice `json:"task_graphs,omitempty"`
	Regions    *RegionChoice    `json:"regions,omitempty"`
	Shards     *shard.Chosen    `json:"shardings,omitempty"`
	Zero       *PartChoice      `json:"zero,omitempty"`
	Groups     *GroupChoice     `json:"apply_groups,omitempty"`
}

// TaskGraphChoice says which TaskGraph ops and variables are of; -1: none, it is done wherever it is read.
type TaskGraphChoice struct {
	Stages    []int `json:"stages"` // the TaskGraphs in the order in which data flow through them
	Ops       Runs  `json:"ops"`
	Variables Runs  `json:"variables"`
}

// RegionChoice says how the pass regions divides a program.
type RegionChoice struct {
	Count int   `json:"count"` // of forward; backward has as many
	Of    Runs  `json:"of"`    // by op
	Keep  []int `json:"keep"`  // ops whose results recompute keeps
}

// PartChoice says what the pass zero divides over the model replicas.
type PartChoice struct {
	Divided   []string `json:"divided"`            // variables
	Weights   []string `json:"weights"`            // those among them that forward and backward read
	Gradients []int    `json:"gradients"`          // merges of which each model replica gets a part
	Factored  []int    `json:"factored,omitempty"` // those among them that are computed from gathered factors
	Whole     []string `json:"whole"`              // sentences: what stays whole, and why
}

// GroupChoice says what the optimizer computes in each group of the pass apply-groups.
type GroupChoice struct {
	Count     int        `json:"count"`
	Of        Runs       `json:"of"`        // by op; -1: none
	Variables [][]string `json:"variables"` // by group, for people
}

// open is the error of a pass that has to apply a choice that was not made.
func open(pass string) error {
	return errors.Errorf("epl: internal error: nothing was chosen for pass %q", pass)
}

// Runs are numbers, many of which are equal to the one before. Their text is short: "0x3 1" are 0, 0, 0, 1.
type Runs []int

// MarshalText implements encoding.TextMarshaler.
func (r Runs) MarshalText() ([]byte, error) {
	var words []string
	for i := 0; i < len(r); {
		n := i + 1
		for n < len(r) && r[n] == r[i] {
			n++
		}
		word := strconv.Itoa(r[i])
		if n > i+1 {
			word += fmt.Sprintf("x%d", n-i)
		}
		words = append(words, word)
		i = n
	}
	return []byte(strings.Join(words, " ")), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Runs) UnmarshalText(text []byte) error {
	*r = Runs{}
	for word := range strings.FieldsSeq(string(text)) {
		value, times, repeated := strings.Cut(word, "x")
		n := 1
		x, err := strconv.Atoi(value)
		if err == nil && repeated {
			n, err = strconv.Atoi(times)
		}
		if err != nil || n < 1 || n > 1<<24 {
			return errors.Errorf("%q is no number, and none with how often it comes", word)
		}
		*r = append(*r, slices.Repeat([]int{x}, n)...)
	}
	return nil
}
