// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla_test

import (
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// A variable comes from pinned memory, is computed with and goes back, all without waiting; the originals may be finalized meanwhile.
func TestCopiesToAndFromTheHostDoNotWait(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{})
	d := xlatest.Devices(t, f, xla.Options{})[0]
	x, err := emit.Program(d, parse(t, step))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Finalize()
	must := func(b compute.Buffer, err error) compute.Buffer {
		t.Helper()
		if err != nil {
			t.Fatalf("%v", err)
		}
		return b
	}
	finalize := func(all ...compute.Buffer) {
		t.Helper()
		for _, b := range all {
			if err := b.Finalize(); err != nil {
				t.Fatal(err)
			}
		}
	}
	w, data := upload(t, d, 1, 2, 3), upload(t, d, 1, 10, 100)
	pinned := must(d.ToHost(w))
	finalize(w)
	if _, err := x.Execute([]compute.Buffer{pinned, data}, nil, 0); err == nil || !strings.Contains(err.Error(), "memory of the host") {
		t.Errorf("a program takes what is on the host: %v", err)
	}
	f.Hold()
	loaded := must(d.ToDevice(pinned))
	outs, err := x.Execute([]compute.Buffer{loaded, data}, []bool{true, false}, 0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	stored := must(d.ToHost(outs[0]))
	finalize(append(outs, pinned)...)
	f.Release()
	if err := d.Await(stored); err != nil {
		t.Fatal(err)
	}
	mustRead(t, stored, 2, 12, 103)
	finalize(stored, data)
	f.Fail("PJRT_Client_BufferFromHostBuffer", pjrt.ResourceExhausted, "Out of host memory")
	if _, err := d.HostFromFlatData([]float32{1}, shapes.Make(dtypes.Float32, 1)); err == nil || !strings.Contains(err.Error(), "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB") {
		t.Errorf("too little memory is %v", err)
	}
}
