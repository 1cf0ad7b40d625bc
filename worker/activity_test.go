// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"
	"time"
)

func TestAWorkerThatTrainsDoesNotEvaluate(t *testing.T) {
	const pause = 2 * time.Second
	var a activity
	is := func(when string, after time.Duration, evaluating, saving bool) {
		t.Helper()
		if e, s := a.busy(time.Now().Add(after), pause); e != evaluating || s != saving {
			t.Errorf("%s: evaluating %v, saving %v", when, e, s)
		}
	}
	is("at the start", 0, false, false)
	over := a.run()
	is("a program runs before the first step", time.Hour, true, false)
	over()
	is("just after it", time.Second, true, false)
	is("long after it", time.Hour, false, false)

	step := a.train()
	data := a.run()
	a.reads()
	is("a step that takes long, with programs that prepare data", time.Hour, false, false)
	data()
	step()
	data = a.run()
	is("between two steps", time.Second, false, false)
	is("a program goes on, and no step comes", 3*time.Second, true, false)
	data()

	a.reads()
	is("a variable was read between two steps", 0, false, false)
	a.trained = a.trained.Add(-time.Minute)
	is("variables are read, and no step comes", 0, true, true)
	a.ran = a.ran.Add(-time.Minute)
	is("and no other program ran", 0, false, true)
}
