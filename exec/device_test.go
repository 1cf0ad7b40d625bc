// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package exec_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/exec"
)

// several is a backend that says that it has several devices, and writes down which one is asked for what.
type several struct {
	compute.Backend
	log *[]string
}

func (s several) NumDevices() int { return 3 }

func (s several) BufferFromFlatData(n compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	*s.log = append(*s.log, fmt.Sprint("data on ", n))
	return s.Backend.BufferFromFlatData(0, flat, shape)
}

func (s several) Builder(name string) compute.Builder {
	return building{s.Backend.Builder(name), s.log}
}

func (s several) Finalize() { *s.log = append(*s.log, "finalized") }

type building struct {
	compute.Builder
	log *[]string
}

func (b building) Compile() (compute.Executable, error) {
	e, err := b.Builder.Compile()
	return running{e, b.log}, err
}

type running struct {
	compute.Executable
	log *[]string
}

func (r running) Execute(in []compute.Buffer, donate []bool, n compute.DeviceNum) ([]compute.Buffer, error) {
	*r.log = append(*r.log, fmt.Sprint("run on ", n))
	return r.Executable.Execute(in, donate, 0)
}

func TestEachDeviceOfABackendIsUsedByItsNumber(t *testing.T) {
	inner, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Finalize()
	if all := exec.Devices(inner); len(all) != 1 || all[0] != inner {
		t.Errorf("a backend of one device is %d, or another one", len(all))
	}
	var log []string
	devices := exec.Devices(several{inner, &log})
	if len(devices) != 3 {
		t.Fatalf("%d devices", len(devices))
	}
	shape := shapes.Make(dtypes.Float32, 2)
	for _, d := range devices {
		if d.NumDevices() != 1 {
			t.Errorf("a device has %d", d.NumDevices())
		}
		x, err := d.BufferFromFlatData(0, []float32{1, 2}, shape)
		if err != nil {
			t.Fatal(err)
		}
		b := d.Builder("neg")
		p, err := b.Main().Parameter("x", shape, nil)
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.Main().Neg(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Main().Return([]compute.Value{y}, nil); err != nil {
			t.Fatal(err)
		}
		e, err := b.Compile()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Execute([]compute.Buffer{x}, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range devices {
		d.Finalize()
	}
	if got := fmt.Sprint(log); got != "[data on 0 run on 0 data on 1 run on 1 data on 2 run on 2 finalized]" {
		t.Error(got)
	}
}
