package xla

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/hlo"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
)

// executable is a segment on a GPU. It implements compute.Executable and emit.Late.
type executable struct {
	device  *Device
	segment *ir.Segment

	mu      sync.Mutex
	modules []*module // by which inputs are donated: there is mostly one
	ready   bool      // no more are compiled
}

// text is the module of the segment.
func (x *executable) text(donate []bool) (string, error) {
	text, err := hlo.Module(x.segment, hlo.Options{Donor: donate, CUDNN: x.device.cudnn, TF32: x.device.tf32})
	return text, errors.WithMessagef(err, "epl: %s", x.name())
}

func (x *executable) name() string { return fmt.Sprintf("program %q", x.segment.Name) }

// Ready implements emit.Late.
func (x *executable) Ready(donate []bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ready = true
	if x.at(donate) != nil {
		return nil
	}
	return x.compile(donate)
}

// at is the module that may use the memory of these inputs; nil: there is none yet.
func (x *executable) at(donate []bool) *module {
	for _, m := range x.modules {
		if slices.Equal(m.donates, donate) {
			return m
		}
	}
	return nil
}

func (x *executable) compile(donate []bool) error {
	text, err := x.text(donate)
	if err != nil {
		return err
	}
	if see := x.device.client.opts.Compiling; see != nil {
		see(x.segment, donate, text)
	}
	m, err := x.device.client.compile(x.name(), text, x.device.gpu)
	if err != nil {
		return err
	}
	m.donates = slices.Clone(donate)
	x.modules = append(x.modules, m)
	return nil
}

// module is the one to run. If modules were made ready for other donations only, it is the one that differs least: a copy costs less than to
// compile in the middle of a step. keep are the inputs that it could use, and must not.
func (x *executable) module(donate []bool) (m *module, keep []int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.at(donate) == nil && !x.ready {
		if err := x.compile(donate); err != nil {
			return nil, nil, err
		}
	}
	if m = x.at(donate); m != nil {
		return m, nil, nil
	}
	differ := func(m *module) (n int) {
		for i, d := range m.donates {
			if d != donate[i] {
				n++
			}
		}
		return n
	}
	m = slices.MinFunc(x.modules, func(a, b *module) int { return cmp.Compare(differ(a), differ(b)) })
	for i, d := range m.donates {
		if d && !donate[i] {
			keep = append(keep, i)
		}
	}
	return m, keep, nil
}

// Memory implements emit.Late: what the module needs that needs most beside its inputs. The compiler tells how much memory outputs share with
// inputs, and not which; outputs take that of the first that fits, and what is left over is counted outside.
func (x *executable) Memory() *emit.Listing {
	x.mu.Lock()
	defer x.mu.Unlock()
	var l *emit.Listing
	for _, m := range x.modules {
		if n := m.memory; n.Arguments+n.Outputs+n.Temporary > 0 {
			one := &emit.Listing{Segment: x.segment.Name, Ops: len(x.segment.Ops), Level: "XLA", Over: Over(x.segment, m.donates)}
			shared := int64(0)
			for i, over := range one.Over {
				if over >= 0 {
					shared += x.segment.Outputs[i].Bytes()
				}
			}
			one.Outside = n.Temporary + shared - n.Aliased
			if l == nil || one.Outside > l.Outside {
				l = one
			}
		}
	}
	return l
}

// Over pairs outputs with donated inputs of the same shape, as XLA does: for every output an input, or -1.
func Over(s *ir.Segment, donate []bool) []int {
	all, taken := make([]int, len(s.Outputs)), map[int]bool{}
	for i, v := range s.Outputs {
		all[i] = -1
		for j, in := range s.Inputs {
			if all[i] < 0 && donate[j] && !taken[j] && in.Shape.Equal(v.Shape) {
				all[i], taken[j] = j, true
			}
		}
	}
	return all
}

// Finalize implements compute.Executable.
func (x *executable) Finalize() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.modules {
		_ = x.device.client.free(m)
	}
	x.modules = nil
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
		if b.host {
			return nil, errors.Errorf("epl: %s: input %d is in memory of the host", x.name(), i)
		}
		if want := x.segment.Inputs[i].Shape; !b.shape.Equal(want) {
			return nil, errors.Errorf("epl: %s: input %d is %s, not %s", x.name(), i, b.shape, want)
		}
		args[i] = b.data
	}
	m, keep, err := x.module(gives)
	if err != nil {
		return nil, err
	}
	var all [][]*pjrt.Buffer
	err = x.device.client.call("start "+x.name(), func() (err error) {
		all, _, err = m.Execute([][]*pjrt.Buffer{args}, pjrt.ExecuteOptions{NoEvents: true, Keep: keep})
		return err
	})
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
