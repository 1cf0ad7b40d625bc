// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// network has a product, which XLA computes with what comes after it in one kernel, and an update.
const network = `program "network"
main {
  %0 = Parameter() {Name: "w", Shape: float32[3,3]} -> float32[3,3] : forward
  %1 = Parameter() {Name: "x", Shape: float32[3,3]} -> float32[3,3] : forward
  %2 = DotGeneral(%1, %0) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[3,3] : forward "net/model.go:7"
  %3 = Tanh(%2) {} -> float32[3,3] : forward "net/model.go:8"
  %4 = Sub(%0, %3) {} -> float32[3,3] : apply "net/main.go:9"
  %5 = DotGeneral(%1, %3) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[3,3] : backward "net/model.go:7"
  %6 = Transpose(%5) {Permutation: [1, 0]} -> float32[3,3] : backward "net/model.go:7"
  return %4, %6
}
`

// Kernels are told with what they compute, for which lines of the model, on which device. What is not known of a kernel is not made up.
func TestADeviceTellsWhatItRan(t *testing.T) {
	var module string
	begun := time.Unix(1700000000, 0)
	f := pjrttest.New(t, pjrttest.Options{Devices: 2,
		Optimized: func(string) []byte {
			return pjrttest.Module(pjrttest.Instruction{Name: "p0", Opcode: "parameter", Dims: []uint64{3, 3}},
				pjrttest.Instruction{Name: "gemm_fusion.7", Opcode: "fusion", Location: "1", Dims: []uint64{3, 3}, Operands: []int{0, 0}, Parts: []pjrttest.Instruction{
					{Name: "dot.1", Opcode: "dot", Location: "0", Dims: []uint64{3, 3}}, {Name: "tanh.1", Opcode: "tanh", Location: "1", Dims: []uint64{3, 3}}}},
				pjrttest.Instruction{Name: "subtract.3", Opcode: "subtract", Location: "2", Dims: []uint64{3, 3}, Operands: []int{1, 0}},
				pjrttest.Instruction{Name: "custom-call.1", Opcode: "custom-call", Target: "__cublas$gemm", Location: "4", Dims: []uint64{3, 3}, Operands: []int{1, 0}})
		},
		Profile: func() []byte {
			return pjrttest.Space(
				pjrttest.Kernel{Device: 1, Name: "Memset", Module: module, Op: "gemm_fusion.7", Start: begun, Took: time.Microsecond},
				pjrttest.Kernel{Device: 1, Name: "gemm_fusion_7", Module: module, Op: "gemm_fusion.7", Start: begun.Add(2 * time.Microsecond), Took: 5 * time.Microsecond},
				pjrttest.Kernel{Device: 1, Name: "wrapped_subtract", Module: module, Op: "subtract.3", Start: begun.Add(7 * time.Microsecond), Took: time.Microsecond},
				pjrttest.Kernel{Device: 1, Name: "nvjet_sm90_3x3", Module: module, Op: "custom-call.1", Start: begun.Add(8 * time.Microsecond), Took: time.Microsecond},
				pjrttest.Kernel{Device: 1, Name: "memcpy128", Start: begun.Add(9 * time.Microsecond), Took: time.Microsecond},
				pjrttest.Kernel{Device: 5, Name: "of_another_process", Start: begun, Took: time.Microsecond})
		}})
	all := xlatest.Devices(t, f, xla.Options{Compiling: func(_ *ir.Segment, _ []bool, text string) { module = text }}) // the fake's names are texts
	x, err := emit.Program(all[1], parse(t, network))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Finalize()
	if err := x.(emit.Late).Ready([]bool{false, false}); err != nil {
		t.Fatal(err)
	}
	stop, err := all[0].Profile([]compute.Backend{all[0], all[1]})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all[1].Profile(nil); err == nil {
		t.Error("two profilers run at the same time")
	}
	var got []string
	if err := stop(func(device int, s emit.Step, start, end time.Time) {
		var sites []string
		for _, at := range s.Sites {
			sites = append(sites, fmt.Sprintf("%s %.2f", at.Line, at.Share))
		}
		got = append(got, fmt.Sprintf("device %d, %s, %s: %s; %d flops, %d bytes, %s to %s: %s", device, s.Phase, s.Kind, s, s.Flops, s.Read+s.Written, start.Sub(begun), end.Sub(begun), sites))
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"device 1, forward, product: DotGeneral Tanh 3×3, kernel Memset; 0 flops, 0 bytes, 0s to 1µs: [net/model.go:7 0.88 net/model.go:8 0.12]",
		"device 1, forward, product: DotGeneral Tanh 3×3, kernel gemm_fusion; 54 flops, 108 bytes, 2µs to 7µs: [net/model.go:7 0.88 net/model.go:8 0.12]",
		"device 1, apply, op: Sub 3×3, kernel wrapped_subtract; 0 flops, 108 bytes, 7µs to 8µs: [net/main.go:9 1.00]",
		"device 1, backward, product: Transpose DotGeneral 3×3, kernel nvjet_sm90_3x3; 54 flops, 108 bytes, 8µs to 9µs: [net/model.go:7 1.00]",
		"device 1, , op: memcpy128 -; 0 flops, 0 bytes, 9µs to 10µs: []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if stop, err := all[1].Profile(nil); err != nil {
		t.Error(err)
	} else if err := stop(func(int, emit.Step, time.Time, time.Time) { t.Error("a kernel of a device that was not asked for") }); err != nil {
		t.Error(err)
	}
}

// Kernels of CUDA graphs have no names: there are none where they are asked for, unless the user says so.
func TestKernelsAreNotInGraphsWhereTheyAreTold(t *testing.T) {
	for _, c := range []struct {
		asked       bool
		environment string
		want        bool
	}{{true, "", true}, {false, "", false}, {true, "--xla_gpu_enable_command_buffer=FUSION", false}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Setenv("XLA_FLAGS", c.environment)
			f := pjrttest.New(t, pjrttest.Options{})
			d := xlatest.Devices(t, f, xla.Options{Opening: exec.Opening{Kernels: c.asked}})[0]
			x, err := emit.Program(d, parse(t, step))
			if err != nil {
				t.Fatal(err)
			}
			if err := x.(emit.Late).Ready([]bool{false, false}); err != nil {
				t.Fatal(err)
			}
			if value, set := f.CompileOptions().Flags["xla_gpu_enable_command_buffer"]; set != c.want || set && value != "" {
				t.Errorf("the flag is %v (%t)", value, set)
			}
			x.Finalize()
		})
	}
}
