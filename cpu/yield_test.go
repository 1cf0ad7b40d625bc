// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/emit"
)

// Somebody who reads a donated input is waited for before its first byte changes, and has time until then.
func TestAnInputThatIsReadIsOverwrittenLater(t *testing.T) {
	_, _, exec, ins := descending(t)
	donate := slices.Repeat([]bool{true}, len(ins))
	before, memory := make([][]byte, len(ins)), make([][]byte, len(ins))
	for i, in := range ins {
		flat, err := in.Data()
		if err != nil {
			t.Fatal(err)
		}
		for k := range flat.([]float32) {
			flat.([]float32)[k] = float32(k%7) - 2
		}
		memory[i] = dtypes.UnsafeByteSliceFromAny(flat)
		before[i] = slices.Clone(memory[i])
	}
	asked := make([]bool, len(ins))
	outs, err := exec.(emit.Yielding).ExecuteYielding(ins, donate, 0, func(i int) bool {
		if !asked[i] && !bytes.Equal(before[i], memory[i]) {
			t.Errorf("input %d was overwritten before somebody had read it", i)
		}
		asked[i] = true
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(asked, false) {
		t.Errorf("nobody was waited for: %v", asked)
	}
	inPlace := 0
	for _, o := range outs {
		flat, err := o.Data()
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range memory {
			if b := dtypes.UnsafeByteSliceFromAny(flat); len(b) > 0 && &b[0] == &m[0] && !bytes.Equal(b, before[i]) {
				inPlace++
			}
		}
	}
	if inPlace == 0 {
		t.Error("nothing was updated in place, so that nothing was tested")
	}
}

// An input that somebody needs to the end stays as it is, and the caller's: the results are those of a run to which nothing was donated.
func TestAnInputThatSomebodyNeedsStays(t *testing.T) {
	_, _, exec, ins := descending(t)
	elements := func(b compute.Buffer) []float32 {
		flat, err := b.Data()
		if err != nil {
			t.Fatal(err)
		}
		return flat.([]float32)
	}
	var before [][]float32
	for _, in := range ins {
		for k := range elements(in) {
			elements(in)[k] = float32(k%7) - 2
		}
		before = append(before, slices.Clone(elements(in)))
	}
	want, err := exec.Execute(ins, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := exec.(emit.Yielding).ExecuteYielding(ins, slices.Repeat([]bool{true}, len(ins)), 0, func(int) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	for i, in := range ins {
		if !slices.Equal(elements(in), before[i]) {
			t.Errorf("input %d was overwritten", i)
		}
	}
	for i := range want {
		if !slices.Equal(elements(got[i]), elements(want[i])) {
			t.Errorf("output %d is %v, want %v", i, elements(got[i]), elements(want[i]))
		}
	}
}
