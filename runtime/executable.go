package runtime

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// Executable runs a whole program on one device. It implements compute.Executable.
type Executable struct {
	name  string
	data  *Data
	inner compute.Executable
}

var _ compute.Executable = (*Executable)(nil)

// NewExecutable wraps an executable of the inner backend that holds data's buffers. name is the program's.
func NewExecutable(name string, data *Data, inner compute.Executable) *Executable {
	return &Executable{name, data, inner}
}

// Finalize implements compute.Executable.
func (e *Executable) Finalize() { e.inner.Finalize() }

// Inputs implements compute.Executable.
func (e *Executable) Inputs() ([]string, []shapes.Shape) { return e.inner.Inputs() }

// Outputs implements compute.Executable.
func (e *Executable) Outputs() []shapes.Shape { return e.inner.Outputs() }

// Execute implements compute.Executable.
func (e *Executable) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	if err := e.data.check(device); err != nil {
		return nil, err
	}
	if len(donate) != 0 && len(donate) != len(inputs) {
		return nil, errors.Errorf("epl: program %q: %d inputs, but donation is given for %d", e.name, len(inputs), len(donate))
	}
	ins := make([]compute.Buffer, len(inputs))
	for i, x := range inputs {
		b, ok := x.(*Buffer)
		if !ok || b.data != e.data {
			return nil, errors.Errorf("epl: program %q: input %d is a %T that does not belong to this backend", e.name, i, x)
		}
		var err error
		if ins[i], err = b.shard(0); err != nil {
			return nil, errors.WithMessagef(err, "program %q, input %d", e.name, i)
		}
	}
	for i, d := range donate {
		if d {
			if _, err := inputs[i].(*Buffer).take(); err != nil {
				return nil, errors.WithMessagef(err, "program %q, input %d is donated twice", e.name, i)
			}
		}
	}
	outs, err := e.inner.Execute(ins, donate, 0)
	if err != nil {
		return nil, errors.WithMessagef(err, "epl: program %q", e.name)
	}
	for i, o := range outs {
		if outs[i], err = e.data.wrap(o); err != nil {
			return nil, err
		}
	}
	return outs, nil
}
