package cpu_test

import (
	"bytes"
	"slices"
	"testing"

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
	outs, err := exec.(emit.Yielding).ExecuteYielding(ins, donate, 0, func(i int) {
		if !asked[i] && !bytes.Equal(before[i], memory[i]) {
			t.Errorf("input %d was overwritten before somebody had read it", i)
		}
		asked[i] = true
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
