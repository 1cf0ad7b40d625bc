package runtime

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// Executable runs a whole program once, on one device. It implements compute.Executable.
type Executable struct {
	name  string
	data  *Data
	inner compute.Executable
	stats *Stats
	opts  OnceOptions
}

// OnceOptions say how a program is run as a whole.
type OnceOptions struct {
	Device int   // which of the worker's devices
	Memory int64 // bytes the device has; 0: not limited
	// Profile is what the program needs of memory; nil: nobody counts.
	Profile *schedule.Profile
	// NoFeed is why the program cannot take batches of a Feed; "": it can, one at a time.
	NoFeed string
}

var _ compute.Executable = (*Executable)(nil)

// NewExecutable wraps an executable of the inner backend of a device of data. name is the program's.
func NewExecutable(name string, data *Data, inner compute.Executable, stats *Stats, opts OnceOptions) *Executable {
	return &Executable{name, data, inner, stats, opts}
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
		if b.feed != nil && e.opts.NoFeed != "" {
			return nil, errors.New(e.opts.NoFeed)
		}
		var err error
		if ins[i], err = b.shard(e.opts.Device); err != nil {
			return nil, errors.WithMessagef(err, "program %q, input %d", e.name, i)
		}
	}
	m := meter{device: e.opts.Device, limit: e.opts.Memory}
	if err := e.count(&m, ins, donate); err != nil {
		return nil, errors.WithMessagef(err, "program %q", e.name)
	}
	for i, d := range donate {
		if !d {
			continue
		}
		all, err := inputs[i].(*Buffer).take()
		if err != nil {
			return nil, errors.WithMessagef(err, "program %q, input %d is donated twice", e.name, i)
		}
		for _, x := range all { // on other devices, if it is there: out of date soon
			if x != ins[i] {
				if err := x.Finalize(); err != nil {
					return nil, err
				}
			}
		}
	}
	outs, err := e.inner.Execute(ins, donate, 0)
	if err != nil {
		return nil, errors.WithMessagef(err, "epl: program %q", e.name)
	}
	e.stats.ran(e.opts.Device, m.books, nil)
	for i, o := range outs {
		shards := make([]compute.Buffer, e.opts.Device+1)
		shards[e.opts.Device] = o
		if outs[i], err = e.data.wrap(shards...); err != nil {
			return nil, err
		}
	}
	return outs, nil
}

// count puts on the books what the program needs.
func (e *Executable) count(m *meter, ins []compute.Buffer, donate []bool) error {
	p := e.opts.Profile
	if p == nil || len(ins) != p.Inputs() {
		return nil // the inner backend says what is wrong
	}
	for i, b := range ins {
		if err := m.add(p.Use(i), bytesOf(b)); err != nil {
			return err
		}
	}
	if err := m.addAll(p.Arena(), 1); err != nil {
		return err
	}
	return m.during(p.Need(func(i int) bool { return len(donate) > 0 && donate[i] }))
}

// Signature is what a program takes and gives. It implements compute.Executable, but does not run.
type Signature struct{ Program *ir.Program }

// Finalize implements compute.Executable.
func (x *Signature) Finalize() {}

// Execute implements compute.Executable.
func (x *Signature) Execute([]compute.Buffer, []bool, compute.DeviceNum) ([]compute.Buffer, error) {
	return nil, errors.Errorf("epl: internal error: program %q is not compiled", x.Program.Name)
}

// Inputs implements compute.Executable.
func (x *Signature) Inputs() (names []string, s []shapes.Shape) {
	for _, v := range x.Program.Main.Params {
		names, s = append(names, v.Op.Attrs.(*ir.Parameter).Name), append(s, v.Shape)
	}
	return names, s
}

// Outputs implements compute.Executable.
func (x *Signature) Outputs() (s []shapes.Shape) {
	for _, v := range x.Program.Main.Outputs {
		s = append(s, v.Shape)
	}
	return s
}

// check tells whether a call has as many inputs as the program.
func (x *Signature) check(inputs []compute.Buffer, donate []bool) error {
	if n := len(x.Program.Main.Params); len(inputs) != n || len(donate) != 0 && len(donate) != n {
		return errors.Errorf("epl: program %q takes %d inputs, not %d (donation given for %d)", x.Program.Name, n, len(inputs), len(donate))
	}
	return nil
}
