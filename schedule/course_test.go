// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// highest is the first sample of those that have most.
func highest(course []Sample) Sample {
	best := course[0]
	for _, x := range course {
		if x.Live.Total() > best.Live.Total() {
			best = x
		}
	}
	return best
}

// mostOf is the most that lives in each instruction.
func mostOf(course []Sample) map[int]int64 {
	most := map[int]int64{}
	for _, x := range course {
		most[x.At] = max(most[x.At], x.Live.Total())
	}
	return most
}

func TestTheCourseIsHighestWhereTheAccountSaysSo(t *testing.T) {
	for _, strategy := range []Strategy{PreferBackward, PreferForward, ZeroBubble} {
		for _, traffic := range []Traffic{{}, {Half: true, Packed: true}} {
			for replicas := range 2 {
				p, err := ir.Parse(fmt.Sprintf(stages, replicas+1, 4))
				if err != nil {
					t.Fatal(err)
				}
				s, err := Build(p, Options{MaxSplits: 2, Strategy: strategy, Ranks: [][]int{{0, 1}, {2, 3}}[:replicas+1]})
				if err != nil {
					t.Fatal(err)
				}
				a := s.Account(p, traffic, nil)
				brief := a.Brief()
				for place, course := range a.Course() {
					if most := mostOf(course); fmt.Sprint(mostOf(brief[place])) != fmt.Sprint(most) || len(brief[place]) != len(most) {
						t.Errorf("%s %+v, device %d: in brief there are %v, and not %v", strategy, traffic, place, mostOf(brief[place]), most)
					}
					got, want := highest(course), a.Places[place]
					if got.Live != want.Peak || got.At != want.At {
						t.Errorf("%s %+v, device %d: at %d there are %v, but the account has %v at %d",
							strategy, traffic, place, got.At, got.Live, want.Peak, want.At)
					}
				}
			}
		}
	}
}

func TestTheCourseHasEveryInstructionAndEveryOpInOrder(t *testing.T) {
	p, err := ir.Parse(fmt.Sprintf(stages, 1, 3))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Build(p, Options{MaxSplits: 1, Strategy: PreferBackward, Ranks: [][]int{{0, 1}}})
	if err != nil {
		t.Fatal(err)
	}
	for place, course := range s.Account(p, Traffic{}, nil).Course() {
		if course[0].At != -1 || course[0].Live != (Bytes{ForWeights: 32, ForState: course[0].Live[ForState]}) {
			t.Errorf("device %d starts with %v", place, course[0])
		}
		for i, in := range s.Places[place] {
			var ops []*ir.Op
			found := 0
			for _, x := range course {
				if x.At == i {
					found++
				}
				if x.At == i && x.Op != nil {
					ops = append(ops, x.Op)
				}
			}
			var want []*ir.Op
			if in.Kind == Run {
				want = s.Segments[in.Segment].Ops
			}
			if found == 0 || fmt.Sprint(ops) != fmt.Sprint(want) {
				t.Errorf("device %d, %s: %d samples, with the ops %v and not %v", place, s.Text(in), found, ops, want)
			}
		}
		for i := range course[1:] {
			if course[i].At > course[i+1].At {
				t.Errorf("device %d goes back from instruction %d to %d", place, course[i].At, course[i+1].At)
			}
		}
	}
}

func TestAProgramThatRunsAsAWholeHasACourseToo(t *testing.T) {
	p, err := ir.Parse(fmt.Sprintf(stages, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	a := WholeAccount(p, nil)
	course := a.Course()[0]
	if got, want := highest(course), a.Places[0]; got.Live != want.Peak || len(course) < p.NumOps()/2 {
		t.Errorf("%d samples, the highest with %v; the account has %v", len(course), got.Live, want.Peak)
	}
}
