// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"reflect"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/notimplemented"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Builder records one program. It implements compute.Builder. The annotation state on it belongs to the goroutine
// that builds the graph.
type Builder struct {
	notimplemented.Builder
	backend *Backend
	program *ir.Program
	main    *Func
	shadow  compute.Builder
	graph   *graph.Graph // once an annotation has shown it to us
	values  []*Value     // all that were handed out, to let go of their shadows

	scopes
	backward
	attentions
	params map[string]*ir.Value // parameters of main by name
	first  func()               // see Beside; nil: nothing
	closed error                // why nothing can be recorded, such as that the backend was closed before; nil: it can
}

var _ compute.Builder = (*Builder)(nil)

// Func records one function. It implements compute.Function; most of its methods are generated.
type Func struct {
	b        *Builder
	fn       *ir.Func
	parent   *Func
	shadow   compute.Function
	returned bool
}

var _ compute.Function = (*Func)(nil)

func newBuilder(backend *Backend, name string) *Builder {
	b := &Builder{backend: backend, program: ir.NewProgram(name), params: map[string]*ir.Value{}}
	b.main = &Func{b: b, fn: b.program.Main}
	if backend.final.Load() {
		b.closed = backend.engine.Closed()
	} else {
		b.shadow, b.main.shadow, b.closed = newShadow(name)
	}
	return b
}

// recording is why nothing more can be recorded; nil: it can.
func (f *Func) recording(what any) error {
	switch {
	case f.b.closed != nil:
		return f.b.closed
	case f.shadow == nil:
		return errors.Errorf("epl: %v: program %q is compiled already", what, f.b.Name())
	}
	return nil
}

// Compiled tells whether the program is finished: nothing can be added to it.
func (b *Builder) Compiled() bool { return b.main.shadow == nil }

// Name implements compute.Builder.
func (b *Builder) Name() string { return b.program.Name }

// Main implements compute.Builder.
func (b *Builder) Main() compute.Function { return b.main }

// NewFunction implements compute.Builder.
func (b *Builder) NewFunction(name string) (compute.Function, error) {
	if err := b.main.recording("NewFunction"); err != nil {
		return nil, err
	}
	shadow, err := b.shadow.NewFunction(name)
	if err != nil {
		return nil, err
	}
	f := &Func{b: b, fn: &ir.Func{Name: name}, shadow: shadow}
	b.program.Funcs = append(b.program.Funcs, f.fn)
	return f, nil
}

// OpShape implements compute.Builder.
func (b *Builder) OpShape(v compute.Value) (shapes.Shape, error) { return b.main.Shape(v) }

// AccumulateGradients is why GoMLX's way to accumulate gradients is refused.
const AccumulateGradients = "epl: Trainer.AccumulateGradients does not work on EPL, which accumulates gradients itself: " +
	"remove the call and set pipeline.num_micro_batch to the number of steps"

const distributes = "epl: EPL distributes the program itself: remove %s, and say what you want by epl.With and epl.Split"

// DistributedSPMD implements compute.Builder, by an error.
func (b *Builder) DistributedSPMD(int) error {
	return errors.Errorf(distributes, "the SPMD settings of GoMLX")
}

// DistributedAutoSharding implements compute.Builder, by an error.
func (b *Builder) DistributedAutoSharding(...compute.Mesh) error {
	return errors.Errorf(distributes, "the auto-sharding settings of GoMLX")
}

// DeviceAssignment implements compute.Builder. GoMLX sees one device, number 0.
func (b *Builder) DeviceAssignment(devices ...compute.DeviceNum) error {
	if len(devices) != 1 || devices[0] != 0 {
		return errors.Errorf(distributes, "the device assignment of GoMLX")
	}
	return nil
}

// Compile implements compute.Builder: it hands the finished program to the engine.
func (b *Builder) Compile() (compute.Executable, error) {
	if err := b.main.recording("Compile"); err != nil {
		return nil, err
	}
	if !b.main.returned {
		return nil, errors.Errorf("epl: program %q cannot be compiled before its main function returns", b.Name())
	}
	if b.failed != nil {
		return nil, b.failed
	}
	if err := b.finish(); err != nil {
		return nil, err
	}
	for _, v := range b.values {
		v.shadow = nil
	}
	b.values, b.shadow, b.main.shadow = nil, nil, nil
	if s, ok := b.backend.engine.(Starter); ok && b.first != nil {
		return s.CompileBeside(b.program, b.first)
	}
	return b.backend.engine.Compile(b.program)
}

// Beside lets the engine call first on another goroutine while it compiles the program, in which the one that builds it waits. Or it does not:
// nothing may depend on that.
func (b *Builder) Beside(first func()) { b.first = first }

// Name implements compute.Function.
func (f *Func) Name() string { return f.fn.Name }

// Builder implements compute.Function.
func (f *Func) Builder() compute.Builder { return f.b }

// Parent implements compute.Function.
func (f *Func) Parent() compute.Function {
	if f.parent == nil {
		return nil
	}
	return f.parent
}

// Closure implements compute.Function.
func (f *Func) Closure() (compute.Function, error) {
	if err := f.recording("Closure"); err != nil {
		return nil, err
	}
	shadow, err := f.shadow.Closure()
	if err != nil {
		return nil, err
	}
	return &Func{b: f.b, fn: &ir.Func{Parent: f.fn}, parent: f, shadow: shadow}, nil
}

// Shape implements compute.Function.
func (f *Func) Shape(v compute.Value) (shapes.Shape, error) {
	rv, err := f.b.own(v)
	if err != nil {
		return shapes.Shape{}, err
	}
	return rv.Shape, nil
}

// Parameter implements compute.Function.
func (f *Func) Parameter(name string, shape shapes.Shape, sharding *compute.ShardingSpec) (compute.Value, error) {
	if strings.HasPrefix(name, "/"+train.AccumulatedGradientsScope+"/") {
		return nil, errors.New(AccumulateGradients)
	}
	vs, err := f.record(&ir.Parameter{Name: name, Shape: shape.Clone(), Sharding: sharding}, opInputs{})
	if err == nil && f.parent == nil && f == f.b.main {
		f.b.params[name] = vs[0].(*Value).Value
	}
	return one(vs, err)
}

// Constant implements compute.Function.
func (f *Func) Constant(flat any, dims ...int) (compute.Value, error) {
	// The slice is only lent to us. The shadow checks it against dims, so the copy is made first and used for both.
	c := &ir.Constant{Value: ir.Literal{Shape: shapes.Shape{Dimensions: clone(dims)}, Flat: cloneFlat(flat)}}
	vs, err := f.record(c, opInputs{})
	if err == nil {
		c.Value.Shape = vs[0].(*Value).Shape
	}
	return one(vs, err)
}

func cloneFlat(flat any) any {
	v := reflect.ValueOf(flat)
	if v.Kind() != reflect.Slice {
		return flat // the shadow will say what is wrong with it
	}
	c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	reflect.Copy(c, v)
	return c.Interface()
}

// Return implements compute.Function.
func (f *Func) Return(outputs []compute.Value, shardings []*compute.ShardingSpec) error {
	if err := f.recording("Return"); err != nil {
		return err
	}
	shadows := make([]compute.Value, len(outputs))
	values := make([]*ir.Value, len(outputs))
	for i, o := range outputs {
		v, err := f.b.own(o)
		if err != nil {
			return errors.WithMessagef(err, "Return: output #%d", i)
		}
		values[i], shadows[i] = v.Value, v.shadow
	}
	if err := f.shadow.Return(shadows, shardings); err != nil {
		return err
	}
	f.fn.Outputs, f.returned = values, true
	return nil
}

// own checks that a value is one of this builder's.
func (b *Builder) own(v compute.Value) (*Value, error) {
	rv, ok := v.(*Value)
	if !ok || rv == nil {
		return nil, errors.Errorf("epl: a value of type %T is not one of this backend", v)
	}
	if rv.fn.b != b {
		return nil, errors.Errorf("epl: value %s belongs to program %q, not to %q", rv, rv.fn.b.Name(), b.Name())
	}
	return rv, nil
}

// record emits the op to the shadow, which checks it and knows its shapes, and appends it to the program.
func (f *Func) record(attrs ir.Attrs, in opInputs) ([]compute.Value, error) {
	if err := f.recording(attrs.OpType()); err != nil {
		return nil, err
	}
	var shadowed ir.Operands
	ins := make([]*ir.Value, len(in.vals))
	for i, v := range in.vals {
		if v == nil {
			shadowed.Values = append(shadowed.Values, nil)
			continue
		}
		rv, err := f.b.own(v)
		if err != nil {
			return nil, errors.WithMessagef(err, "%s: input #%d", attrs.OpType(), i)
		}
		ins[i] = rv.Value
		shadowed.Values = append(shadowed.Values, rv.shadow)
	}
	var fns []*ir.Func
	for i, fn := range in.fns {
		rf, ok := fn.(*Func)
		if !ok || rf == nil || rf.b != f.b {
			return nil, errors.Errorf("epl: %s: function #%d is not one of program %q", attrs.OpType(), i, f.b.Name())
		}
		fns = append(fns, rf.fn)
		shadowed.Funcs = append(shadowed.Funcs, rf.shadow)
	}
	shadows, err := attrs.Emit(f.shadow, &shadowed)
	if compute.IsNotImplemented(err) {
		if values, ok, lowerErr := f.lower(attrs, in); ok {
			return values, lowerErr
		}
	}
	if err != nil {
		return nil, err
	}
	outs := make([]shapes.Shape, len(shadows))
	for i, s := range shadows {
		if outs[i], err = f.shadow.Shape(s); err != nil {
			return nil, err
		}
	}
	var twin []*ir.Value
	if strings.HasPrefix(string(attrs.OpType()), "Fused") {
		if twin = findTwin(f.fn.Ops, ins, twinned(attrs, outs)); twin == nil {
			if twin, err = f.cloned(attrs, ins); err != nil {
				return nil, err
			}
		}
	}
	op := f.b.program.NewOp(attrs, ins, outs...)
	op.Funcs, op.Twin = fns, twin
	f.fn.Append(op)
	f.b.attribute(op)

	values := make([]compute.Value, len(shadows))
	for i, s := range shadows {
		v := &Value{Value: op.Outputs[i], fn: f, shadow: s}
		f.b.values = append(f.b.values, v)
		values[i] = v
	}
	if twin != nil {
		f.fused(attrs, in, values, twin[0])
	}
	return values, nil
}
