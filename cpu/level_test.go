// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/cpu/isa"
)

// atEveryLevel runs a test with the kernels of each level that this CPU has.
func atEveryLevel(t *testing.T, f func(t *testing.T)) {
	defer isa.Use(isa.Current())
	for l := isa.Portable; l <= isa.Best(); l++ {
		isa.Use(l)
		t.Run(l.String(), f)
	}
}

func TestRandomProgramsGiveTheResultsOfTheBackendAtEveryLevel(t *testing.T) {
	atEveryLevel(t, func(t *testing.T) {
		oracle, list := opByOp(t), engines(t)
		defer oracle.Finalize()
		cases := uint64(60)
		if testing.Short() {
			cases = 20
		}
		for seed := range cases {
			w := program(rand.New(rand.NewPCG(1000+seed, 7)), fmt.Sprint("random ", 1000+seed))
			checkProgram(t, w, list, oracle)
		}
	})
}

func TestADeviceSaysWhatItIs(t *testing.T) {
	defer isa.Use(isa.Use(isa.Portable))
	for threads, want := range map[int]string{1: "1 thread, portable", 3: "3 threads, portable"} {
		b := cpu.New(opByOp(t), threads)
		defer b.Finalize()
		if !strings.HasSuffix(b.Description(), want) {
			t.Errorf("%q does not end with %q", b.Description(), want)
		}
	}
}
