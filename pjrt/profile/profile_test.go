// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package profile_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/easyparallel/epl/pjrt/profile"
)

// The files of testdata are what an H200 gave for two runs of a module of two products, a hyperbolic tangent with an addition, and a sum of rows, each with a number
// for its location: the program "profiled" in the tests of package pjrt.
func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestKernelsHaveTheirModuleAndInstruction(t *testing.T) {
	kernels, err := profile.Kernels(file(t, "space.pb"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range kernels {
		if k.Module != "m_probe" || k.Device != 0 || k.Start.Year() < 2020 || k.Took <= 0 {
			t.Errorf("%+v", k)
		}
		got = append(got, k.Op)
	}
	once := "custom-call.0 custom-call.0 gemm_fusion__.7 custom-call.1 custom-call.1 input_reduce_fusion"
	if want := once + " " + once; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestInstructionsHaveTheLocationsOfWhatTheyCompute(t *testing.T) {
	all, err := profile.Module(file(t, "module.pb"), "hlo_with_config")
	if err != nil {
		t.Fatal(err)
	}
	const matrix = 4096 * 4096
	for name, want := range map[string]string{
		"custom-call.0":       "custom-call at 0 of 16777216: []",
		"gemm_fusion__.7":     "fusion at 2 of 16777216: [tanh at 1 add at 2]",
		"input_reduce_fusion": "fusion at 4 of 16777216: [reduce at 4]",
	} {
		x := all[name]
		if x == nil {
			t.Errorf("%s is not there", name)
			continue
		}
		var parts []string
		for _, p := range x.Parts {
			parts = append(parts, p.Opcode+" at "+p.Location)
		}
		if got := fmt.Sprintf("%s at %s of %d: %s", x.Opcode, x.Location, x.Elements, parts); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if x := all["gemm_fusion__.7"]; x.Read != 2*4*matrix || x.Written != 4*matrix {
		t.Errorf("it reads %d bytes and writes %d", x.Read, x.Written)
	}
	if x := all["custom-call.0"]; x.Target != "__cublas$lt$matmul" && x.Target != "__cublas$gemm" {
		t.Errorf("it calls %s", x.Target)
	}
}

func FuzzKernels(f *testing.F) {
	f.Add(file(f, "space.pb"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = profile.Kernels(b) })
}

func FuzzModule(f *testing.F) {
	f.Add(file(f, "module.pb"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = profile.Module(b, "hlo_with_config") })
}
