// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
)

// Kind is a kind of devices, such as GPUs, as the options of a backend's name describe it.
type Kind interface {
	// Joint is why the devices of several workers cannot be those of one client; nil: they can.
	Joint() error
	// Open makes the devices of a worker.
	Open(Opening) ([]compute.Backend, error)
}

// Opening says which devices are made. The zero value are all that there are, for a worker that is alone.
type Opening struct {
	Workers []int // how many devices each worker of the job uses
	Worker  int   // this one
	// Peers makes the devices of all workers those of one client; nil: this worker's are its own.
	Peers Peers
	// Kernels: devices that are [Profiled] are to tell of each kernel where it comes from. Programs may run slower.
	Kernels bool
}

// Needed is how many devices this worker uses; 0: all that there are.
func (o Opening) Needed() int {
	if o.Workers == nil {
		return 0
	}
	return o.Workers[o.Worker]
}

// Peers is how devices of a worker work together with those of others. Its methods are called by several goroutines at a time.
type Peers interface {
	// Get waits for the value that another worker puts under a key, until ctx is done; TryGet does not wait. They fail at once if the job has failed.
	Get(ctx context.Context, key string) ([]byte, error)
	TryGet(key string) (value []byte, found bool, err error)
	// Put sets a value for all workers.
	Put(key string, value []byte) error

	// Watch returns a context for a wait in which other workers may hold up this one, until over is called. It ends when the job fails, and when they
	// hold it up for too long, which fails the job; its cause says who. what completes "waits to …".
	Watch(what string) (ctx context.Context, over func())
	// Busy tells the other workers why they may have to wait, until over is called.
	Busy(what string) (over func())
	// Err is why the job has failed; nil: it has not.
	Err() error
	// Name says which worker it is, and where.
	Name(worker int) string
}

// kinds are those that are known, by the name of the backend.
var kinds = map[string]func(options string) (Kind, error){}

// Register makes a kind of devices known. find reads the options of a backend's name, and looks for what the devices need; it makes none. It is called
// while packages are initialized.
func Register(name string, find func(options string) (Kind, error)) { kinds[name] = find }

// Registered is what finds a kind of devices; nil: no package of the program does.
func Registered(name string) func(options string) (Kind, error) { return kinds[name] }

// Devices are the devices of a backend, each as a backend of its own with one device: whatever a device is given goes to its own
// number. A backend that has one device is that device.
func Devices(b compute.Backend) []compute.Backend {
	n := b.NumDevices()
	if n < 2 {
		return []compute.Backend{b}
	}
	all := make([]compute.Backend, n)
	for i := range all {
		all[i] = &device{b, compute.DeviceNum(i)}
	}
	return all
}

// device is one of several of a backend. Others see it as number 0 of a backend of its own.
type device struct {
	compute.Backend
	num compute.DeviceNum
}

// NumDevices implements compute.Backend.
func (d *device) NumDevices() int { return 1 }

// DeviceDescription implements compute.Backend.
func (d *device) DeviceDescription(compute.DeviceNum) string {
	return d.Backend.DeviceDescription(d.num)
}

// BufferFromFlatData implements compute.DataInterface.
func (d *device) BufferFromFlatData(_ compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	return d.Backend.BufferFromFlatData(d.num, flat, shape)
}

// NewSharedBuffer implements compute.DataInterface.
func (d *device) NewSharedBuffer(_ compute.DeviceNum, shape shapes.Shape) (compute.Buffer, any, error) {
	return d.Backend.NewSharedBuffer(d.num, shape)
}

// Builder implements compute.Backend: what it compiles runs on the device.
func (d *device) Builder(name string) compute.Builder {
	return &builder{d.Backend.Builder(name), d.num}
}

// Finalize implements compute.Backend. The first device takes the others with it.
func (d *device) Finalize() {
	if d.num == 0 {
		d.Backend.Finalize()
	}
}

type builder struct {
	compute.Builder
	num compute.DeviceNum
}

// Compile implements compute.Builder.
func (b *builder) Compile() (compute.Executable, error) {
	e, err := b.Builder.Compile()
	if err != nil {
		return nil, err
	}
	return &executable{e, b.num}, nil
}

type executable struct {
	compute.Executable
	num compute.DeviceNum
}

// Execute implements compute.Executable.
func (e *executable) Execute(inputs []compute.Buffer, donate []bool, _ compute.DeviceNum) ([]compute.Buffer, error) {
	return e.Executable.Execute(inputs, donate, e.num)
}
