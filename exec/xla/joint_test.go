// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/internal/jobtest"
	"github.com/easyparallel/epl/pjrt/pjrttest"
	"github.com/easyparallel/epl/worker"
)

// join makes the workers of a job with so many devices each.
func join(t *testing.T, devices ...int) []*worker.Job {
	t.Helper()
	cfg, err := config.New(map[string]any{"communication.timeout": "1m"})
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{worker.EnvURL: "file://" + filepath.Join(t.TempDir(), "job")}
	lookup := func(name string) (string, bool) { value, found := env[name]; return value, found }
	jobs, errs := make([]*worker.Job, len(devices)), make([]error, len(devices))
	jobtest.OnAll(len(devices), func(i int) {
		c, err := cluster.New(cluster.Spec{Devices: devices, WorkerIndex: i})
		if err != nil {
			errs[i] = err
			return
		}
		jobs[i], errs[i] = worker.Join(worker.Options{Cluster: c, Config: cfg, Lookup: lookup})
	})
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { jobtest.OnAll(len(jobs), func(i int) { _ = jobs[i].Leave() }) })
	return jobs
}

// open makes the devices of all workers of a job those of one client.
func open(t *testing.T, f *pjrttest.Fake, jobs []*worker.Job, options func(worker int) xla.Options) (all [][]*xla.Device, errs []error) {
	t.Helper()
	p := f.Load(t)
	all, errs = make([][]*xla.Device, len(jobs)), make([]error, len(jobs))
	see := xlatest.Compiling(t, f, nil)
	jobtest.OnAll(len(jobs), func(i int) {
		o := options(i)
		o.Opening = exec.Opening{Workers: jobs[i].Devices, Worker: jobs[i].Worker, Peers: jobs[i].Peers()}
		o.Compiling = see
		if all[i], errs[i] = xla.Devices(p, o); errs[i] != nil {
			jobs[i].Fail(errs[i])
		}
	})
	t.Cleanup(func() {
		for _, d := range slices.Concat(all...) {
			d.Finalize()
		}
	})
	return all, errs
}

func none(int) xla.Options { return xla.Options{} }

func TestTheDevicesOfAllWorkersAreThoseOfOneClient(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{Devices: 3})
	uses := []int{2, 1, 3}
	all, errs := open(t, f, join(t, uses...), none)
	for i, devices := range all {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if len(devices) != uses[i] {
			t.Errorf("worker %d has %d devices", i, len(devices))
		}
		var got []string
		for _, d := range devices[0].Ranks() {
			got = append(got, fmt.Sprintf("%d of %d: %t", d.ID, d.Process, d.Addressable))
		}
		want := []string{"0 of 0: %t", "1 of 0: %t", "3 of 1: %t", "6 of 2: %t", "7 of 2: %t", "8 of 2: %t"}
		for rank, of := range []int{0, 0, 1, 2, 2, 2} {
			want[rank] = fmt.Sprintf(want[rank], of == i)
		}
		if !slices.Equal(got, want) {
			t.Errorf("ranks of worker %d are %q, want %q", i, got, want)
		}
		for n, d := range devices { // each works by itself, too
			x, err := emit.Program(d, parse(t, step))
			if err != nil {
				t.Fatal(err)
			}
			w, data := upload(t, d, 1, 2, 3), upload(t, d, 1, 10, 100)
			outs, err := x.Execute([]compute.Buffer{w, data}, nil, 0)
			if err != nil {
				t.Fatalf("%v", err)
			}
			mustRead(t, outs[0], 2, 12, 103)
			if ids, want := f.CompileOptions().Devices, devices[0].Ranks()[[]int{0, 2, 3}[i]+n].ID; !slices.Equal(ids, []int{want}) {
				t.Errorf("device %d of worker %d compiles for %v, want %d", n, i, ids, want)
			}
			x.Finalize()
		}
	}
}

func TestRanksOfOneWorker(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{Devices: 3})
	for _, c := range []struct {
		o    xla.Options
		want int
	}{
		{xla.Options{}, 3},
		{xla.Options{Opening: exec.Opening{Workers: []int{2}}}, 2},
		{xla.Options{Opening: exec.Opening{Workers: []int{2, 2}, Worker: 1}}, 0}, // the other worker has a client of its own
		{xla.Options{Opening: exec.Opening{Workers: []int{6}}, Share: 2}, 0},
	} {
		devices := xlatest.Devices(t, f, c.o)
		if got := len(devices[0].Ranks()); got != c.want {
			t.Errorf("%+v: %d ranks", c.o.Opening, got)
		}
		if needed := c.o.Opening.Needed(); needed > 0 && len(devices) != needed {
			t.Errorf("%+v: %d devices", c.o.Opening, len(devices))
		}
	}
}

func TestAWorkerWithTooFewGPUsIsNamedByAll(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{Devices: 2})
	_, errs := open(t, f, join(t, 1, 2), func(worker int) (o xla.Options) {
		if worker == 1 {
			o.VisibleDevices = []int64{0}
		}
		return o
	})
	for i, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "worker 1 (") || !strings.Contains(err.Error(), "is to have 2 devices, and has 1 GPU") {
			t.Errorf("worker %d: %v", i, err)
		}
	}
}

// A worker that cannot make its part of the client ends the job, and the others do not wait for it.
func TestAWorkerWithoutGPUsEndsTheJob(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{})
	jobs := join(t, 1, 1, 1)
	go jobs[1].Fail(errors.New("epl: this machine seems to have no NVIDIA GPU"))
	_, errs := open(t, f, []*worker.Job{jobs[0], jobs[2]}, none)
	for _, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "worker 1") || !strings.Contains(err.Error(), "no NVIDIA GPU") {
			t.Errorf("the error is %v", err)
		}
	}
}

// What a GPU does together with one that is gone never ends. Who waits for it does, and so does closing.
func TestALostWorkerEndsWaitsForTheGPU(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{})
	jobs := join(t, 1, 1)
	all, errs := open(t, f, jobs, none)
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	d := all[0][0]
	x, err := emit.Program(d, parse(t, step))
	if err != nil {
		t.Fatal(err)
	}
	w, data, kept := upload(t, d, 1, 2, 3), upload(t, d, 1, 10, 100), upload(t, d, 4, 5)
	f.Hold()
	f.Leave()
	outs, err := x.Execute([]compute.Buffer{w, data}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() { failed <- outs[0].ToFlatData(make([]float32, 3)) }()
	go jobs[1].Fail(errors.New("epl: its process was killed"))
	if err := <-failed; err == nil || !strings.Contains(err.Error(), `program "step"`) || !strings.Contains(err.Error(), "worker 1") || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("the error is %v", err)
	}
	if _, err := x.Execute([]compute.Buffer{w, data}, nil, 0); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("the error is %v", err)
	}
	if err := outs[0].Finalize(); err != nil {
		t.Error(err)
	}
	f.Release()
	f.Hold()
	time.AfterFunc(50*time.Millisecond, f.Release)
	mustRead(t, kept, 4, 5) // what the GPU has can still be read
	x.Finalize()
	d.Finalize()
	for _, name := range f.Called() {
		if strings.HasSuffix(name, "_Destroy") && !strings.HasPrefix(name, "PJRT_Error") && name != "PJRT_Event_Destroy" {
			t.Errorf("%s is called, though the GPU may be stuck", name)
		}
	}
}
