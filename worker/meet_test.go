// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
)

// meet lets some workers call Meet, and returns what each hears.
func meet(t *testing.T, jobs []*Job, programs ...string) []bool {
	t.Helper()
	heard := make([]bool, len(programs))
	jobtest.OnAll(len(programs), func(i int) {
		if programs[i] == "" {
			return
		}
		var err error
		if heard[i], err = jobs[i].Meet("program", programs[i]); err != nil {
			t.Errorf("worker %d: %v", i, err)
		}
	})
	return heard
}

func TestWorkersThatCallTheSameProgramMeet(t *testing.T) {
	jobs := joined(t, 3, "1s", nil) // who comes when the others have gone apart waits so long
	for range 5 {
		if heard := meet(t, jobs, "a b", "a b", "a b"); slices.Contains(heard, false) {
			t.Errorf("workers that call the same program hear %v", heard)
		}
	}
	if heard := meet(t, jobs, "a b", "a b", "a c"); slices.Contains(heard, true) {
		t.Errorf("workers that call different programs hear %v", heard)
	}
	if heard := meet(t, jobs, "a", "a", "a"); slices.Contains(heard, false) {
		t.Errorf("workers that call the same program afterwards hear %v", heard)
	}
}

// A worker that is in a step which the others have not begun cannot come. One that has not finished a step which they have, can.
func TestWorkersDoNotWaitForOneThatWaitsForThem(t *testing.T) {
	jobs := joined(t, 3, "1m", nil)
	for absent := range jobs {
		programs := []string{"a", "a", "a"}
		programs[absent] = ""
		over := jobs[absent].Training()
		if heard := meet(t, jobs, programs...); slices.Contains(heard, true) {
			t.Errorf("while worker %d trains, workers hear %v", absent, heard)
		}
		for i, j := range jobs {
			if i != absent {
				j.Training()()
			}
		}
		late := make(chan struct{})
		go func() {
			defer close(late)
			time.Sleep(50 * time.Millisecond)
			over() // it ends its step later than the others
			if all, err := jobs[absent].Meet("program", "b"); err != nil || !all {
				t.Errorf("the late worker hears %v, %v", all, err)
			}
		}()
		programs = []string{"b", "b", "b"}
		programs[absent] = ""
		for i, heard := range meet(t, jobs, programs...) {
			if i != absent && !heard {
				t.Errorf("worker %d does not wait for the late one", i)
			}
		}
		<-late
	}
}

func TestWorkersDoNotWaitForOneThatHasFinishedOrSleeps(t *testing.T) {
	jobs := joined(t, 2, "1s", nil)
	if heard := meet(t, jobs, "a", ""); heard[0] {
		t.Error("a worker meets one that did not come")
	}
	if heard := meet(t, jobs, "a", "a"); slices.Contains(heard, false) {
		t.Errorf("workers that call the same program hear %v", heard)
	}
	for absent := range jobs {
		jobs := joined(t, 2, "1m", nil)
		go jobs[absent].Leave() // it stays until the other leaves, too
		if all, err := jobs[1-absent].Meet("program", "a"); all || err != nil {
			t.Errorf("worker %d hears %v, %v, though the other leaves", 1-absent, all, err)
		}
	}
}

// Whatever workers call, in whatever order: nobody hears that all have come unless all do, and nobody waits for ever.
func TestAllWorkersHearTheSame(t *testing.T) {
	const n, steps = 3, 30
	jobs := joined(t, n, "1m", nil)
	heard := make([][]string, n) // the calls of a worker that met, between two steps
	jobtest.OnAll(n, func(i int) {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		for step := range steps {
			for range random.IntN(3) {
				time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
				program := fmt.Sprint("p", random.IntN(2))
				all, err := jobs[i].Meet("program", program)
				if err != nil {
					t.Errorf("worker %d: %v", i, err)
				}
				if all {
					jobs[i].Joint()()
					heard[i] = append(heard[i], fmt.Sprint(step, " ", program))
				}
			}
			over := jobs[i].Training()
			if err := jobs[i].Agree(fmt.Sprint("step ", step), ""); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
			over()
		}
	})
	for i := range jobs {
		if !slices.Equal(heard[i], heard[0]) {
			t.Errorf("worker %d met the others in %v, worker 0 in %v", i, heard[i], heard[0])
		}
	}
	if len(heard[0]) == 0 {
		t.Error("they never met")
	}
}
