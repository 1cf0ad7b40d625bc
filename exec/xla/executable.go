package xla

import (
	"context"
	"fmt"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/hlo"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
)

// executable is a segment on a GPU. It implements compute.Executable.
type executable struct {
	device  *Device
	segment *ir.Segment

	mu      sync.Mutex
	modules map[string]*pjrt.Executable // by which inputs are donated
}

// text is the module of the segment.
func (x *executable) text(donate []bool) (string, error) {
	text, err := hlo.Module(x.segment, hlo.Options{Donor: donate, CUDNN: x.device.cudnn, TF32: x.device.tf32})
	return text, errors.WithMessagef(err, "epl: %s", x.name())
}

func (x *executable) name() string { return fmt.Sprintf("program %q", x.segment.Name) }

// module is compiled once for each way to donate inputs: there is mostly one.
func (x *executable) module(donate []bool) (*pjrt.Executable, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	way := fmt.Sprint(donate)
	if m := x.modules[way]; m != nil {
		return m, nil
	}
	text, err := x.text(donate)
	if err != nil {
		return nil, err
	}
	if see := x.device.client.opts.Compiling; see != nil {
		see(x.segment, donate, text)
	}
	m, err := x.device.client.compile(x.name(), text, x.device.gpu)
	if err == nil {
		x.modules[way] = m
	}
	return m, err
}

// Finalize implements compute.Executable.
func (x *executable) Finalize() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.modules {
		_ = m.Close()
	}
	clear(x.modules)
}

// Inputs implements compute.Executable.
func (x *executable) Inputs() (names []string, s []shapes.Shape) {
	for i, v := range x.segment.Inputs {
		name := fmt.Sprint("in", i)
		if p, ok := v.Op.Attrs.(*ir.Parameter); ok {
			name = p.Name
		}
		names, s = append(names, name), append(s, v.Shape)
	}
	return names, s
}

// Outputs implements compute.Executable.
func (x *executable) Outputs() (s []shapes.Shape) {
	for _, v := range x.segment.Outputs {
		s = append(s, v.Shape)
	}
	return s
}

// Execute implements compute.Executable. It does not wait for the GPU.
func (x *executable) Execute(inputs []compute.Buffer, donate []bool, _ compute.DeviceNum) ([]compute.Buffer, error) {
	if len(inputs) != len(x.segment.Inputs) || len(donate) != 0 && len(donate) != len(inputs) {
		return nil, errors.Errorf("epl: %s takes %d inputs, not %d (donation given for %d)", x.name(), len(x.segment.Inputs), len(inputs), len(donate))
	}
	args, gives := make([]*pjrt.Buffer, len(inputs)), make([]bool, len(inputs))
	copy(gives, donate)
	for i, in := range inputs {
		b, ok := in.(*buffer)
		if !ok || b.device != x.device {
			return nil, errors.Errorf("epl: %s: input %d is a %T of another device", x.name(), i, in)
		}
		if want := x.segment.Inputs[i].Shape; !b.shape.Equal(want) {
			return nil, errors.Errorf("epl: %s: input %d is %s, not %s", x.name(), i, b.shape, want)
		}
		args[i] = b.data
	}
	m, err := x.module(gives)
	if err != nil {
		return nil, err
	}
	all, _, err := m.Execute([][]*pjrt.Buffer{args}, pjrt.ExecuteOptions{NoEvents: true})
	if err != nil {
		return nil, errors.WithMessagef(err, "epl: %s on %s", x.name(), x.device.DeviceDescription(0))
	}
	outs := make([]compute.Buffer, len(x.segment.Outputs))
	for i, b := range all[0] {
		outs[i] = &buffer{device: x.device, data: b, shape: x.segment.Outputs[i].Shape, of: x.name()}
	}
	for i, b := range args {
		if gives[i] { // its memory is gone, or not needed any more
			if err := b.Close(); err != nil {
				return nil, err
			}
		}
	}
	return outs, nil
}

// finish waits for a copy.
func finish(done *pjrt.Event) error { return pjrt.Finish(context.Background(), done) }
