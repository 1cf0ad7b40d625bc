// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/local"
	"github.com/easyparallel/epl/ir"
)

var vector = shapes.Make(dtypes.Float32, 3)

// twice is an executable that doubles a vector, and the data of the backend it runs on.
func twice(t *testing.T) (compute.Executable, *local.Runner) {
	t.Helper()
	inner, err := gobackend.New("ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	return twiceOn(t, inner)
}

func twiceOn(t *testing.T, inner compute.Backend) (compute.Executable, *local.Runner) {
	t.Helper()
	p, err := ir.Parse(`program "twice"
main {
  %0 = Parameter() {Name: "x", Shape: float32[3]} -> float32[3] : forward
  %1 = Add(%0, %0) {} -> float32[3] : forward
  return %1
}
`)
	if err != nil {
		t.Fatal(err)
	}
	runner := local.New(nil, inner)
	x, err := runner.Whole(p, exec.WholeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return x, runner
}

func upload(t *testing.T, d *local.Runner, values ...float32) compute.Buffer {
	t.Helper()
	b, err := d.BufferFromFlatData(0, values, shapes.Make(dtypes.Float32, len(values)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func download(t *testing.T, b compute.Buffer) [3]float32 {
	t.Helper()
	var flat [3]float32
	if err := b.ToFlatData(flat[:]); err != nil {
		t.Fatal(err)
	}
	return flat
}

func mustFail(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

func TestAnExecutableComputesAndKeepsWhatIsNotDonated(t *testing.T) {
	exec, data := twice(t)
	x := upload(t, data, 1, 2, 3)
	for range 3 {
		out, err := exec.Execute([]compute.Buffer{x}, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := download(t, out[0]); got != [3]float32{2, 4, 6} {
			t.Errorf("got %v", got)
		}
	}
	if got := download(t, x); got != [3]float32{1, 2, 3} {
		t.Errorf("the input became %v", got)
	}
}

func TestADonatedBufferIsGoneAndItsResultsStay(t *testing.T) {
	exec, data := twice(t)
	x := upload(t, data, 1, 2, 3)
	out, err := exec.Execute([]compute.Buffer{x}, []bool{true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	mustFail(t, x.ToFlatData(make([]float32, 3)), "after it was finalized or donated")
	if err := x.Finalize(); err != nil {
		t.Errorf("finalizing a donated buffer: %v", err)
	}
	_, err = exec.Execute([]compute.Buffer{x}, nil, 0)
	mustFail(t, err, `program "twice", input 0: epl: a buffer was used after`)
	if got := download(t, out[0]); got != [3]float32{2, 4, 6} {
		t.Errorf("got %v", got)
	}
	// A chain of donations, as a variable goes through steps.
	for range 5 {
		if out, err = exec.Execute(out, []bool{true}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := download(t, out[0]); got != [3]float32{64, 128, 192} {
		t.Errorf("got %v", got)
	}
}

func TestOneBufferDonatedTwiceInOneCallIsAnError(t *testing.T) {
	inner, _ := gobackend.New("ops_sequential")
	p, err := ir.Parse(`program "add"
main {
  %0 = Parameter() {Name: "x", Shape: float32[3]} -> float32[3] : forward
  %1 = Parameter() {Name: "y", Shape: float32[3]} -> float32[3] : forward
  %2 = Add(%0, %1) {} -> float32[3] : forward
  return %2
}
`)
	if err != nil {
		t.Fatal(err)
	}
	data := local.New(nil, inner)
	add, err := data.Whole(p, exec.WholeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	buf := upload(t, data, 1, 2, 3)
	_, err = add.Execute([]compute.Buffer{buf, buf}, []bool{true, true}, 0)
	mustFail(t, err, "donated twice")
}

func TestWrongUseIsAnErrorThatSaysWhatToDo(t *testing.T) {
	exec, data := twice(t)
	other, otherData := twice(t)
	_ = other
	x := upload(t, data, 1, 2, 3)
	_, err := exec.Execute([]compute.Buffer{upload(t, otherData, 1, 2, 3)}, nil, 0)
	mustFail(t, err, "does not belong to this backend")
	_, err = exec.Execute([]compute.Buffer{x}, []bool{true, false}, 0)
	mustFail(t, err, "1 inputs, but donation is given for 2")
	_, err = exec.Execute([]compute.Buffer{x}, nil, 1)
	mustFail(t, err, "there is no device 1")
	_, err = data.BufferFromFlatData(2, []float32{1}, shapes.Make(dtypes.Float32, 1))
	mustFail(t, err, "there is no device 2")
	_, err = x.CopyToDevice(3)
	mustFail(t, err, "there is no device 3")
	_, _, err = data.NewSharedBuffer(0, vector)
	mustFail(t, err, "use BufferFromFlatData")
	_, err = x.Data()
	mustFail(t, err, "use ToFlatData")
	if data.HasSharedBuffers() {
		t.Error("buffers count as shared")
	}
}

func TestACopyIsIndependentOfItsOriginal(t *testing.T) {
	_, data := twice(t)
	x := upload(t, data, 1, 2, 3)
	c, err := x.CopyToDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Finalize(); err != nil {
		t.Fatal(err)
	}
	if got := download(t, c); got != [3]float32{1, 2, 3} {
		t.Errorf("the copy is %v", got)
	}
	if s, err := c.Shape(); err != nil || !s.Equal(vector) {
		t.Errorf("its shape is %s, %v", s, err)
	}
}

// GoMLX finalizes tensors from the garbage collector's goroutine, too.
func TestFinalizingFromManyGoroutinesHappensOnce(t *testing.T) {
	_, data := twice(t)
	x := upload(t, data, 1, 2, 3)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := x.Finalize(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
