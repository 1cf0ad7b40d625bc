// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt/profile"
)

var _ exec.Profiled = (*Device)(nil)

// profiling is for one profiler at a time: a plugin has no more.
var profiling sync.Mutex

// Profile implements exec.Profiled, by the plugin's profiler.
func (d *Device) Profile(devices []compute.Backend) (stop func(did func(device int, s emit.Step, start, end time.Time)) error, err error) {
	if !profiling.TryLock() {
		return nil, errors.New("another program is profiled already")
	}
	p, err := d.client.Plugin().Profile(profileOptions)
	if err != nil {
		profiling.Unlock()
		return nil, err
	}
	return func(did func(device int, s emit.Step, start, end time.Time)) error {
		defer profiling.Unlock()
		space, err := p.Stop()
		if err != nil {
			return err
		}
		kernels, err := profile.Kernels(space)
		if err != nil {
			return err
		}
		return d.client.tell(kernels, devices, did)
	}, nil
}

// profileOptions are a ProfileOptions of version 1 that asks for what GPUs do, and for nothing of the host.
var profileOptions = func() (b []byte) {
	for _, f := range [][2]uint64{{2, 0}, {3, 1}, {5, 1}, {6, 2}} { // host_tracer_level, device_tracer_level, version, device_type
		b = protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(f[0]), protowire.VarintType), f[1])
	}
	return b
}()

// tell tells what the kernels are of devices.
func (c *client) tell(kernels []profile.Kernel, devices []compute.Backend, did func(device int, s emit.Step, start, end time.Time)) error {
	modules := map[string]*profiled{}
	for i := 0; i < len(kernels); {
		// An instruction may have several kernels. The longest has its arithmetic.
		end, longest := i+1, i
		for ; end < len(kernels) && kernels[end].Device == kernels[i].Device && kernels[end].Module == kernels[i].Module && kernels[end].Op == kernels[i].Op && kernels[i].Op != ""; end++ {
			if kernels[end].Took > kernels[longest].Took {
				longest = end
			}
		}
		device := slices.IndexFunc(devices, func(b compute.Backend) bool {
			d, ok := b.(*Device)
			return ok && d.client == c && d.gpu.LocalID == kernels[i].Device
		})
		for ; i < end; i++ {
			if device < 0 {
				continue // not of this client
			}
			k := kernels[i]
			m, known := modules[k.Module]
			if !known {
				var err error
				if m, err = c.profiled(k.Module); err != nil {
					return err
				}
				modules[k.Module] = m
			}
			s := m.step(k)
			if i != longest {
				s.Flops, s.Read, s.Written = 0, 0, 0
			}
			did(device, s, k.Start, k.Start.Add(k.Took))
		}
	}
	return nil
}

// know notes a module that kernels may be of. Those of one name are of one segment, and differ in which inputs they donate.
func (c *client) know(m *module) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.modules == nil {
		c.modules = map[string]*module{}
	}
	c.modules[m.Name()] = m
}

// forget is for a module that is about to be closed.
func (c *client) forget(m *module) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.modules[m.Name()] == m {
		delete(c.modules, m.Name())
	}
}

// profiled is what is known of a module whose kernels are profiled.
type profiled struct {
	ops          []*ir.Op // by their numbers
	instructions map[string]*profile.Instruction
	products     map[*ir.Op]int // how many instructions compute a product of an op
	steps        map[string]emit.Step
}

// profiled finds a module by its name; nil: it is not one of ours, as the copies that the plugin makes are not.
func (c *client) profiled(name string) (*profiled, error) {
	c.mu.Lock()
	m := c.modules[name]
	c.mu.Unlock()
	if m == nil {
		return nil, nil
	}
	m.reading.Lock()
	defer m.reading.Unlock()
	if m.profiled != nil {
		return m.profiled, nil
	}
	program, format, err := m.OptimizedProgram()
	if err != nil {
		return nil, err
	}
	p := &profiled{ops: m.ops, products: map[*ir.Op]int{}, steps: map[string]emit.Step{}}
	if p.instructions, err = profile.Module(program, format); err != nil {
		return nil, err
	}
	for _, x := range p.instructions {
		if productKind(x) != "" {
			p.products[product(p.at(x))]++
		}
	}
	m.profiled = p
	return p, nil
}

// at is the op that an instruction was written for; nil: that is not known.
func (p *profiled) at(x *profile.Instruction) *ir.Op {
	if n, err := strconv.Atoi(x.Location); err == nil && n >= 0 && n < len(p.ops) {
		return p.ops[n]
	}
	return nil
}

// productKind is the kind of step that an instruction is, if it multiplies.
func productKind(x *profile.Instruction) string {
	switch {
	case x.Opcode == "dot", strings.Contains(x.Target, "cublas"), strings.Contains(x.Target, "fmha"), strings.Contains(x.Target, "gemm"):
		return emit.Product
	case x.Opcode == "convolution", strings.Contains(x.Target, "cudnn$conv"):
		return emit.Convolution
	}
	return ""
}

// product is the op that multiplies, where XLA computes it together with what moves its result, and names that.
func product(op *ir.Op) *ir.Op {
	for of := op; of != nil; of = of.Inputs[0].Op {
		switch of.Type() {
		case ir.OpTranspose, ir.OpReshape, ir.OpConvertDType:
			continue
		case ir.OpParameter:
			return op
		}
		return of
	}
	return op
}

// collective is the kind of step in which GPUs communicate.
const collective = "collective"

var collectives = []string{"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast", "ragged-all-to-all", "send", "recv"}

// step describes a kernel.
func (p *profiled) step(k profile.Kernel) emit.Step {
	if p == nil || p.instructions[k.Op] == nil {
		return emit.Step{Kind: emit.Native, What: kernelName(k.Name), Size: "-", Together: 1}
	}
	key := k.Op + " " + k.Name
	if s, ok := p.steps[key]; ok {
		return s
	}
	s := p.describe(p.instructions[k.Op])
	s.Kernel = kernelName(k.Name)
	p.steps[key] = s
	return s
}

// describe tells what an instruction computes, and for which places of the model.
func (p *profiled) describe(x *profile.Instruction) emit.Step {
	s := emit.Step{Kind: emit.Native, Size: emit.Times(x.Dims), Read: x.Read, Written: x.Written, Together: 1}
	parts := x.Parts
	if len(parts) == 0 {
		parts = []*profile.Instruction{x}
	} else {
		s.Kind = emit.Group
	}
	var ops []*ir.Op
	work := map[*ir.Op]float64{}
	for _, part := range parts {
		op := p.at(part)
		if op == nil {
			continue
		}
		if !slices.Contains(ops, op) {
			ops = append(ops, op)
		}
		work[op] += float64(max(part.Elements, 1))
		if kind := productKind(part); kind != "" {
			op = product(op)
			if !slices.Contains(ops, op) {
				ops = append(ops, op)
			}
			flops := cost.Of(op).Flops / int64(p.products[op])
			s.Kind, s.Flops = kind, s.Flops+flops
			work[op] += float64(flops)
		}
	}
	for _, name := range collectives {
		if strings.HasPrefix(x.Opcode, name) {
			s.Kind = collective
		}
	}
	var all emit.Division
	most := 0.0
	phases := map[ir.Phase]float64{}
	for _, op := range ops {
		all.Add(op.Attribution, work[op])
		if phases[op.Phase] += work[op]; s.Phase == "" || phases[op.Phase] > most {
			s.Phase, most = op.Phase.String(), phases[op.Phase]
		}
	}
	s.Ops, s.What, s.Sites = len(ops), emit.OpNames(ops), all.Sites()
	if s.What == "" {
		s.What = x.Opcode
	}
	return s
}

var numberInName = regexp.MustCompile(`([._]+\d+)+$`)

// kernelName is the name of a kernel without what tells it from others of its kind, and not too long.
func kernelName(name string) string {
	const most = 40
	name = numberInName.ReplaceAllString(name, "")
	if r := []rune(name); len(r) > most {
		name = string(r[:most]) + "…"
	}
	return name
}
