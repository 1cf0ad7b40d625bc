package exec

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
)

// opens are what makes the devices of a worker, by the kind of backend.
var opens = map[string]func(options string, needed int) ([]compute.Backend, error){}

// Register makes a kind of devices known. It is called while packages are initialized.
func Register(kind string, open func(options string, needed int) ([]compute.Backend, error)) {
	opens[kind] = open
}

// Registered is what makes devices of a kind; nil: no package of the program does.
func Registered(kind string) func(options string, needed int) ([]compute.Backend, error) {
	return opens[kind]
}

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
