// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes_test

import (
	"slices"
	"testing"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
)

func TestRunsReadBack(t *testing.T) {
	for text, runs := range map[string]passes.Runs{"": {}, "7": {7}, "0x3 -1 2x2": {0, 0, 0, -1, 2, 2}} {
		got, err := runs.MarshalText()
		if err != nil || string(got) != text {
			t.Errorf("%v is %q, %v, not %q", runs, got, err, text)
		}
		var back passes.Runs
		if err := back.UnmarshalText([]byte(text)); err != nil || !slices.Equal(back, runs) {
			t.Errorf("%q is %v, %v", text, back, err)
		}
	}
	for _, text := range []string{"x", "1x", "x2", "1x0", "a", "1x99999999999"} {
		if err := new(passes.Runs).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// A pass applies, and never chooses: without a choice it fails.
func TestAPassWithoutAChoiceFails(t *testing.T) {
	for _, pass := range passes.Table {
		if !slices.Contains([]string{"taskgraphs", "regions", "shard", "zero", "apply-groups"}, pass.Name) {
			continue
		}
		before, _ := golden(t, "testdata/"+pass.Name+".txt")
		if _, err := pass.Run(parse(t, before), options(pass)); err == nil {
			t.Errorf("%s has chosen", pass.Name)
		}
	}
}

// A choice that was made for another program is refused.
func TestAChoiceForAnotherProgramIsRefused(t *testing.T) {
	for _, pass := range passes.Table {
		o := options(pass)
		o.Before = nil
		switch pass.Name {
		case "regions":
			o.Choices.Regions = &passes.RegionChoice{Of: passes.Runs{0, 1}}
		case "zero":
			o.Choices.Zero = &passes.PartChoice{Divided: []string{"/no/such/variable"}}
		case "apply-groups":
			o.Choices.Groups = &passes.GroupChoice{Of: passes.Runs{0, 1}}
		default:
			continue
		}
		before, _ := golden(t, "testdata/"+pass.Name+".txt")
		if _, err := passes.Run(parse(t, before), passes.Set{pass.Name: true}, o, func(passes.Pass, *ir.Program) {}); err == nil {
			t.Errorf("%s took it", pass.Name)
		}
	}
}
