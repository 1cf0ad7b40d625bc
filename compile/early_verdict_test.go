// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"strings"
	"testing"

	"github.com/gomlx/compute"
)

type counted struct {
	compute.Executable
	runs *int
}

func (x counted) Execute([]compute.Buffer, []bool, compute.DeviceNum) ([]compute.Buffer, error) {
	*x.runs++
	return nil, nil
}

func TestFirstValuesAreComputedOnlyForAProgramThatRuns(t *testing.T) {
	for _, runs := range []bool{false, true} {
		n := 0
		v := &verdict{given: make(chan struct{})}
		done := make(chan error)
		go func() {
			_, err := awaiting{counted{runs: &n}, v}.Execute(nil, nil, 0)
			done <- err
		}()
		select {
		case <-done:
			t.Fatal("it did not wait")
		default:
		}
		v.give(runs)
		v.give(!runs) // which is too late
		err := <-done
		if (err == nil) != runs || (n == 1) != runs || err != nil && !strings.Contains(err.Error(), "is refused") {
			t.Errorf("%v: it ran %d times, %v", runs, n, err)
		}
	}
	(*verdict)(nil).give(true) // nobody waits
}
