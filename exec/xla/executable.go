// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/hlo"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
)

// code is a segment for a GPU, or for several that run it together. Devices of this process share it then.
type code struct {
	client  *client
	segment *ir.Segment
	gpus    []*pjrt.Device // that run it
	here    []*pjrt.Device // those of this process
	options hlo.Options
	users   int // devices; guarded by the client

	mu      sync.Mutex
	modules []*module // by which inputs are donated: there is mostly one
	ready   bool      // no more are compiled

	meet meet // of the devices of this process
}

// newCode checks that there is a module for a segment.
func newCode(c *client, d *Device, s *ir.Segment, gpus ...*pjrt.Device) (*code, error) {
	x := &code{client: c, segment: s, gpus: gpus, users: 1, options: hlo.Options{Replicas: len(gpus), CUDNN: d.cudnn, TF32: d.tf32}}
	own := c.AddressableDevices()
	for _, gpu := range gpus {
		if slices.Contains(own, gpu) {
			x.here = append(x.here, gpu)
		}
	}
	_, _, err := x.text(nil)
	return x, err
}

// text is the module of the segment, with numbers of ops.
func (x *code) text(donate []bool) (text string, ops []*ir.Op, err error) {
	o := x.options
	o.Donor = donate
	text, ops, err = hlo.Numbered(x.segment, o)
	return text, ops, errors.WithMessagef(err, "epl: %s", x.name())
}

func (x *code) name() string { return fmt.Sprintf("program %q", x.segment.Name) }

// Ready implements emit.Late.
func (x *code) Ready(donate []bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ready = true
	if x.at(donate) != nil {
		return nil
	}
	return x.compile(donate)
}

// at is the module that may use the memory of these inputs; nil: there is none yet.
func (x *code) at(donate []bool) *module {
	for _, m := range x.modules {
		if slices.Equal(m.donates, donate) {
			return m
		}
	}
	return nil
}

func (x *code) compile(donate []bool) error {
	text, ops, err := x.text(donate)
	if err != nil {
		return err
	}
	if see := x.client.opts.Compiling; see != nil {
		see(x.segment, donate, text)
	}
	m, err := x.client.compile(x.name(), text, x.gpus...)
	if err != nil && strings.Contains(text, hlo.KernelTarget) && !x.options.NoKernels {
		x.client.log("epl: %s is compiled without kernels of EPL's own, which this plugin refuses: %v", x.name(), err)
		x.options.NoKernels = true
		return x.compile(donate)
	}
	if err != nil {
		return err
	}
	m.donates, m.ops = slices.Clone(donate), ops
	x.modules = append(x.modules, m)
	x.client.know(m)
	return nil
}

// module is the one to run. If modules were made ready for other donations only, it is the one that differs least: a copy costs less than to
// compile in the middle of a step. keep are the inputs that it could use, and must not.
func (x *code) module(donate []bool) (m *module, keep []int, err error) {
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
func (x *code) Memory() *emit.Listing {
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

// run starts a module on the GPUs of this process; args and what it returns are by GPU.
func (x *code) run(args [][]*pjrt.Buffer, donate []bool) (outs [][]*pjrt.Buffer, err error) {
	m, keep, err := x.module(donate)
	if err != nil {
		return nil, err
	}
	order := m.Devices() // may be another than ours
	lists := make([][]*pjrt.Buffer, len(order))
	for i, d := range order {
		lists[i] = args[slices.Index(x.here, d)]
	}
	var all [][]*pjrt.Buffer
	err = x.client.call("start "+x.name(), func() (err error) {
		all, _, err = m.Execute(lists, pjrt.ExecuteOptions{NoEvents: true, Keep: keep})
		return err
	})
	if err != nil {
		return nil, err
	}
	outs = make([][]*pjrt.Buffer, len(x.here))
	for i, d := range order {
		outs[slices.Index(x.here, d)] = all[i]
	}
	return outs, nil
}

// release closes the modules with the last device that uses them.
func (x *code) release() {
	x.client.mu.Lock()
	x.users--
	last := x.users == 0
	if last {
		delete(x.client.groups, x.segment)
	}
	x.client.mu.Unlock()
	if !last {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.modules {
		x.client.forget(m)
		_ = x.client.free(m)
	}
	x.modules = nil
}

// executable is what a device runs. It implements compute.Executable, emit.Late and emit.Joint.
type executable struct {
	*code
	device *Device
	once   sync.Once
}

var (
	_ emit.Late  = (*executable)(nil)
	_ emit.Joint = (*executable)(nil)
)

// Finalize implements compute.Executable.
func (x *executable) Finalize() { x.once.Do(x.code.release) }

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

// Execute implements compute.Executable. It does not wait for the GPU, but for the other devices of this process that run the segment with it.
func (x *executable) Execute(inputs []compute.Buffer, donate []bool, _ compute.DeviceNum) ([]compute.Buffer, error) {
	d := x.device
	args, gives, err := d.arguments(x.segment, x.name(), inputs, donate)
	if err != nil {
		return nil, err
	}
	all, err := x.together(d.gpu, args, gives)
	if err != nil {
		return nil, errors.WithMessagef(err, "epl: %s on %s", x.name(), d.DeviceDescription(0))
	}
	return d.results(x.segment, x.name(), all, args, gives)
}

// arguments are the inputs of a segment, if they are on the device and of the right shapes.
func (d *Device) arguments(s *ir.Segment, name string, inputs []compute.Buffer, donate []bool) (args []*pjrt.Buffer, gives []bool, err error) {
	if len(inputs) != len(s.Inputs) || len(donate) != 0 && len(donate) != len(inputs) {
		return nil, nil, errors.Errorf("epl: %s takes %d inputs, not %d (donation given for %d)", name, len(s.Inputs), len(inputs), len(donate))
	}
	args, gives = make([]*pjrt.Buffer, len(inputs)), make([]bool, len(inputs))
	copy(gives, donate)
	for i, in := range inputs {
		b, ok := in.(*buffer)
		if !ok || b.device != d {
			return nil, nil, errors.Errorf("epl: %s: input %d is a %T of another device", name, i, in)
		}
		if b.host {
			return nil, nil, errors.Errorf("epl: %s: input %d is in memory of the host", name, i)
		}
		if want := s.Inputs[i].Shape; !b.shape.Equal(want) {
			return nil, nil, errors.Errorf("epl: %s: input %d is %s, not %s", name, i, b.shape, want)
		}
		args[i] = b.data
	}
	return args, gives, nil
}

// results are the outputs of a segment, after it took what it was given.
func (d *Device) results(s *ir.Segment, name string, all, args []*pjrt.Buffer, gives []bool) ([]compute.Buffer, error) {
	outs := make([]compute.Buffer, len(s.Outputs))
	for i, b := range all {
		outs[i] = &buffer{device: d, data: b, shape: s.Outputs[i].Shape, of: name, by: d}
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
