// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/launch"
)

const pause = 20 * time.Millisecond

func TestAJobGoesOnWithFewerWorkersAndTakesThemInAgain(t *testing.T) {
	t.Parallel()
	const steps = 60
	undisturbed := job{work: work{Dir: t.TempDir(), Steps: steps, Every: 1000}, Options: launch.Options{Workers: 4}}
	status, said := undisturbed.run(t)
	if status != 0 {
		t.Fatal(said)
	}
	wantCurve, want := curve(t, said, steps), weights(t, undisturbed.Dir, steps)

	// The first worker and another are killed: two go on. Steps take their time until all are back.
	j := job{work: work{Dir: t.TempDir(), Steps: steps, Every: 5, Pause: slowly * 2 * pause, Wait: true},
		Options: launch.Options{Workers: 4, MinWorkers: 2, MaxRestarts: 3, RestartDelay: slowly * time.Second}}
	j.hear = killAt(12, 0, 2)
	status, said = j.run(t)
	if status != 0 {
		t.Fatal(said)
	}
	for _, pattern := range []string{
		`epl-launch: worker [02] on .* was killed by signal 9`,
		`epl-launch: generation 1, of 4 workers, ended after step 1[23]; restart 1 of 3 without a new checkpoint; the next one has 2, and goes on from the checkpoint of step 10\n`,
		`epl-launch: generation 2 took its first step [0-9.]+ s after the failure\n`,
		`epl-launch: 2 more can run: taken in after the next checkpoint, or failure\n`,
		`epl-launch: generation 2, of 2 workers, ended after step [0-9]+: 4 workers can run; the next one has 4, and goes on from the checkpoint of step [0-9]+\n`,
	} {
		if !regexp.MustCompile(pattern).MatchString(said) {
			t.Errorf("nobody said %s in:\n%s", pattern, said)
		}
	}
	worst := 0.0
	for i, l := range curve(t, said, steps) {
		if worst = max(worst, math.Abs(l-wantCurve[i])); math.Abs(l-wantCurve[i]) > 1e-5 {
			t.Errorf("the loss of step %d is %v, and %v in the undisturbed run", i+1, l, wantCurve[i])
		}
	}
	t.Logf("the losses of %d steps, %v to %v, differ by %v at most", steps, wantCurve[0], wantCurve[steps-1], worst)
	same(t, want, weights(t, j.Dir, steps), 1e-5)
	if t.Failed() {
		t.Log(said)
	}
}

func TestASpareTakesThePlaceOfALostWorker(t *testing.T) {
	t.Parallel()
	plain := job{work: work{Dir: t.TempDir(), Steps: 16, Every: 1000}, Options: launch.Options{Workers: 3}}
	if status, said := plain.run(t); status != 0 {
		t.Fatal(said)
	}
	j := job{work: work{Dir: t.TempDir(), Steps: 16, Every: 4, Pause: pause, Wait: true},
		Options: launch.Options{Workers: 3, MinWorkers: 2, MaxRestarts: 2, RestartDelay: time.Hour, Spares: 1}}
	j.hear = killAt(7, 1)
	status, said := j.run(t)
	if status != 0 || !strings.Contains(said, "the next one has 3, and goes on from the checkpoint of step 4\n") {
		t.Errorf("status %d:\n%s", status, said)
	}
	same(t, weights(t, plain.Dir, 16), weights(t, j.Dir, 16), 0) // the plan is the same
}

func TestAJobEndsWhenTheSameStepFailsAgain(t *testing.T) {
	t.Parallel()
	j := job{work: work{Dir: t.TempDir(), Steps: 20, Every: 4, Broken: 7, Pause: pause}, Options: launch.Options{Workers: 2, MinWorkers: 2, MaxRestarts: 9}}
	status, said := j.run(t)
	want := `epl-launch: the job ends: the workers failed 2 times in a row with the same error, after step 7 ` +
		`\(the next batch of the data is number 14, counted from 0 over all epochs\): worker 1 on .*the batch is rotten`
	if status != 1 || !regexp.MustCompile(want).MatchString(said) || strings.Count(said, "the next one has 2") != 1 {
		t.Errorf("status %d:\n%s", status, said)
	}
}

func TestALoopThatDoesNotEndAtAGlobalStepIsRefused(t *testing.T) {
	t.Parallel()
	j := job{work: work{Dir: t.TempDir(), Steps: 20, Every: 4, Again: true, Pause: pause, Wait: true}, Options: launch.Options{Workers: 2, MinWorkers: 2, MaxRestarts: 9}}
	j.hear = killAt(7, 1)
	status, said := j.run(t)
	if status != 1 || !strings.Contains(said, "the training loop ends at step 24, and before the workers were started anew it ended at step 20") ||
		!strings.Contains(said, "use loop.RunToGlobalStep instead of RunSteps") {
		t.Errorf("status %d:\n%s", status, said)
	}
}

func TestOneWorkerAloneMayBeElastic(t *testing.T) {
	t.Parallel()
	j := job{work: work{Dir: t.TempDir(), Steps: 16, Every: 4, Pause: pause, Wait: true}, Options: launch.Options{Workers: 1, MinWorkers: 1, MaxRestarts: 2}}
	j.hear = killAt(7, 0)
	status, said := j.run(t)
	if status != 0 || !strings.Contains(said, "goes on from the checkpoint of step 4\n") {
		t.Errorf("status %d:\n%s", status, said)
	}
	plain := job{work: work{Dir: t.TempDir(), Steps: 16, Every: 4}, Options: launch.Options{Workers: 1}}
	if status, said := plain.run(t); status != 0 {
		t.Fatal(said)
	}
	same(t, weights(t, plain.Dir, 16), weights(t, j.Dir, 16), 0)
}
