// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
)

// Fits refuses a plan that was made for another cluster or other passes.
func (pl *Plan) Fits(t Target) error {
	switch now := clusterOf(t); {
	case !reflect.DeepEqual(pl.Cluster.Workers, now.Workers):
		return errors.Errorf("epl: the plan is for another cluster: it has %s, and this one has %s; make the plan again for this one by epl plan --cluster",
			pl.Cluster, now)
	case pl.Passes != t.Passes.String():
		return errors.Errorf("epl: the plan was made with other passes (EPL_PASSES, WithPasses): %s; now they are %s; set them as they were, or make the plan again",
			pl.Passes, t.Passes)
	}
	return nil
}

// String describes the cluster: "2 workers with 4 devices each", or the devices of each.
func (c Cluster) String() string {
	if len(c.Workers) == 0 || len(c.Workers[0]) == 0 {
		return "no devices"
	}
	counts := each(c.Workers, func(devices []int) string { return fmt.Sprint(len(devices)) })
	text, first := words.Count(len(counts), "worker")+" with ", c.Workers[0]
	if len(slices.Compact(slices.Clone(counts))) > 1 {
		return text + strings.Join(counts, ", ") + " devices"
	}
	text += words.Count(len(first), "device")
	if len(counts) > 1 {
		text += " each"
	}
	if first[len(first)-1] >= len(first) { // some are left out
		text += fmt.Sprintf(" (%s)", strings.Trim(fmt.Sprint(first), "[]"))
	}
	return text
}

// fitsProgram refuses a plan that was made for another program, and says what is other, in what a user knows.
func (pl *Plan) fitsProgram(p *ir.Program) error {
	if p.Fingerprint() == pl.Program.Fingerprint {
		return nil
	}
	now := programOf(p)
	refuse := func(format string, args ...any) error {
		return errors.Errorf("epl: the plan of program %q does not fit program %q: %s; make the plan again", pl.Program.Name, p.Name, fmt.Sprintf(format, args...))
	}
	in := func(list []Variable, name string) int {
		return slices.IndexFunc(list, func(v Variable) bool { return v.Name == name })
	}
	for _, v := range pl.Program.Variables {
		switch i := in(now.Variables, v.Name); {
		case i < 0:
			return refuse("variable %q, %s, is missing", v.Name, v.Shape)
		case now.Variables[i] != v:
			return refuse("variable %q is %s, and was %s", v.Name, now.Variables[i].text(), v.text())
		}
	}
	for _, v := range now.Variables {
		if in(pl.Program.Variables, v.Name) < 0 {
			return refuse("variable %q, %s, is new", v.Name, v.Shape)
		}
	}
	if !slices.Equal(now.Inputs, pl.Program.Inputs) {
		return refuse("its inputs are %s, and were %s", strings.Join(now.Inputs, ", "), strings.Join(pl.Program.Inputs, ", "))
	}
	return refuse("its variables and inputs are the same, but it computes something else, with %d ops instead of %d, or has other annotations",
		now.Ops, pl.Program.Ops)
}

func (v Variable) text() string {
	if v.Trainable {
		return v.Shape + ", trainable"
	}
	return v.Shape
}

// In says of an error which file the plan is in.
func In(file string, err error) error {
	if err == nil || file == "" {
		return err
	}
	return errors.Errorf("epl: plan %s: %s", file, strings.TrimPrefix(err.Error(), "epl: "))
}
