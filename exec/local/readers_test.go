// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/exec/local"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
	"github.com/easyparallel/epl/state"
)

// A step overwrites a variable that is being read: it does not wait for a copy to pinned memory, and what is read is the old value. Without such memory it waits.
func TestAStepDoesNotWaitForACopyToPinnedMemory(t *testing.T) {
	for name, pinned := range map[string]bool{"pinned memory": true, "none left": false} {
		t.Run(name, func(t *testing.T) {
			f := pjrttest.New(t, pjrttest.Options{})
			exec, runner := twiceOn(t, xlatest.Devices(t, f, xla.Options{})[0])
			defer exec.Finalize()
			x := upload(t, runner, 1, 2, 3)
			step := func(x compute.Buffer, donate bool) compute.Buffer {
				outs, err := exec.Execute([]compute.Buffer{x}, []bool{donate}, 0)
				if err != nil {
					t.Fatal(err)
				}
				return outs[0]
			}
			variable := step(x, false)
			if !pinned {
				f.Fail("PJRT_Buffer_CopyToMemory", pjrt.ResourceExhausted, "Out of host memory")
			}
			f.Hold()
			r, err := runner.Reader(variable, state.Whole([]int{3}))
			if err != nil {
				t.Fatal(err)
			}
			var next compute.Buffer
			if pinned {
				next = step(variable, true) // never returns if it waits
				f.Release()
				mustReadOld(t, r)
			} else {
				f.Release()
				mustReadOld(t, r)
				next = step(variable, true)
			}
			if got := download(t, next); got != [3]float32{4, 8, 12} {
				t.Errorf("the step gives %v", got)
			}
			for _, b := range []compute.Buffer{x, next} {
				if err := b.Finalize(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func mustReadOld(t *testing.T, r *local.Reading) {
	t.Helper()
	var got [3]float32
	if err := r.Read(state.Whole([]int{3}), dtypes.UnsafeByteSliceFromAny(got[:])); err != nil {
		t.Fatal(err)
	}
	r.Done()
	r.Done() // is harmless
	if got != [3]float32{2, 4, 6} {
		t.Errorf("%v is read, not the value before the step", got)
	}
}
