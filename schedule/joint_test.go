// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

var all = JointOptions{Worker: func(int) int { return 0 }, Can: func([]int) error { return nil }}

// ops prints the segments of a schedule with what they take, compute and give.
func ops(p *Program) (text string) {
	for i, s := range p.Segments {
		text += fmt.Sprintf("\nsegment %d %s, of %d × %d devices %v:\n", i, s.Name, s.Mesh.Replicas, s.Mesh.Model, s.Mesh.Ranks)
		for _, v := range s.First.Inputs {
			text += fmt.Sprintf("  takes %s %s\n", v, ir.ShapeText(v.Shape))
		}
		for _, op := range s.First.Ops {
			text += fmt.Sprintf("  %s\n", op)
		}
		text += fmt.Sprintf("  gives%s\n", values(s.First.Outputs))
	}
	return text
}

func TestListsOfDevicesThatRunSegmentsTogetherAreThoseOfTheGoldenFiles(t *testing.T) {
	for name, s := range map[string]*Program{
		"two-replicas": build(t, 2, 1, 5), "accumulate": build(t, 1, 3, 5), "both": build(t, 3, 2, 1),
		"stages-1x1-PreferBackward": buildStages(t, 1, 1, PreferBackward), "stages-2x3-PreferBackward": buildStages(t, 2, 3, PreferBackward),
		"stages-1x2-ZeroBubble": buildStages(t, 1, 2, ZeroBubble),
	} {
		t.Run(name, func(t *testing.T) {
			joint, why := s.Joint(all)
			if joint == nil {
				t.Fatal(why)
			}
			golden(t, "joint-"+name, joint.String()+ops(joint))
		})
	}
}

// Only what the host has to see is between segments: data, values of other places, and, where there are several places, checks.
func TestOnlyTheHostInterruptsWhatDevicesRunTogether(t *testing.T) {
	for _, s := range []*Program{build(t, 4, 1, 2), build(t, 2, 4, 3), buildStages(t, 2, 4, PreferForward)} {
		joint, why := s.Joint(all)
		if joint == nil {
			t.Fatal(why)
		}
		for _, l := range joint.Places {
			for _, in := range l {
				switch in.Kind {
				case Exchange:
					t.Errorf("%s", joint.Text(in))
				case Merge, Wait, Accumulate:
					if b := joint.Buckets[in.Bucket]; b.How != ir.Agree || len(joint.Places) == 1 || !strings.Contains(b.Host, "other stages") {
						t.Errorf("%s, %s: %s", joint.Text(in), b.How, b.Host)
					}
				}
			}
		}
	}
}

func TestWhoCannotRunSegmentsTogetherKeepsTheirLists(t *testing.T) {
	s := buildStages(t, 2, 3, PreferBackward)
	no := errors.New("they are apart")
	some := all
	some.Can = func(ranks []int) error {
		if slices.Contains(ranks, 1) {
			return no
		}
		return nil
	}
	joint, why := s.Joint(some)
	if joint == nil || why[0] != nil || why[1] != no {
		t.Fatalf("%v", why)
	}
	for place, l := range joint.Places {
		together := slices.ContainsFunc(l, func(in Instr) bool { return in.Kind == Run && joint.Segments[in.Segment].Mesh != nil })
		if together != (place == 0) {
			t.Errorf("place %d runs segments together: %v", place, together)
		}
	}
	none := all
	none.Can = func([]int) error { return no }
	if joint, why := s.Joint(none); joint != nil || len(why) != 2 || why[0] != no {
		t.Errorf("%v, %v", joint, why)
	}
}
