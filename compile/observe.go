// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/trace"
)

// Observer follows training steps, for who watches a training. Programs call it from where they are called.
type Observer interface {
	// Begin is called before a step, and tells whether it is looked at closely.
	Begin() (closely bool)
	// Done is called after it.
	Done(s Observed)
}

// Observed is a training step that has ended.
type Observed struct {
	Program    *Compiled
	Start, End time.Time
	// Trace is what the devices of this worker did, without kernels; nil: it was not looked at closely, or one device ran it as a whole.
	Trace *trace.Step
	// Read reads the scalars that the program returns, in their order, and the global step, 0 if there is none. A device that still computes is waited for.
	Read func() (results []float64, step int64)
}

// observed is a training program whose steps an observer follows.
type observed struct {
	compute.Executable
	e *Engine
	c *Compiled
	w *watch
}

// watch is what a step of it is looked at with.
type watch struct {
	closely bool
	seen    *trace.Step
}

// traced says who collects the events of steps: the file of EPL_TRACE, and the observer.
func (e *Engine) traced(w *watch) (begin func(string) *trace.Step, end func(*trace.Step) error) {
	if e.opts.Observer == nil {
		return e.trace.begin, e.trace.end
	}
	begin = func(program string) *trace.Step {
		s := e.trace.begin(program)
		if s == nil && w.closely {
			s = &trace.Step{Program: program, Coarse: true}
		}
		return s
	}
	return begin, func(s *trace.Step) error {
		if w.seen = s; s.Coarse {
			return nil
		}
		return e.trace.end(s)
	}
}

// observed lets the observer follow the steps of a program, if it is one of training. One whose optimizer EPL does not know is, too.
func (e *Engine) observed(x compute.Executable, c *Compiled, w *watch) compute.Executable {
	if e.opts.Observer == nil || x == nil || !slices.ContainsFunc(c.source.Variables, func(v *ir.Variable) bool { return v.Trainable && v.Update != nil }) {
		return x
	}
	return &observed{Executable: x, e: e, c: c, w: w}
}

// Execute implements compute.Executable.
func (x *observed) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	x.w.closely, x.w.seen = x.e.opts.Observer.Begin(), nil
	start := time.Now()
	outs, err := x.Executable.Execute(inputs, donate, device)
	if err != nil {
		return outs, err
	}
	x.e.opts.Observer.Done(Observed{Program: x.c, Start: start, End: time.Now(), Trace: x.w.seen, Read: func() ([]float64, int64) { return x.read(outs) }})
	return outs, nil
}

// read reads what this worker has of the scalars among the results.
func (x *observed) read(outs []compute.Buffer) (results []float64, step int64) {
	for i, o := range x.c.source.Outputs {
		if i >= len(outs) {
			break
		}
		shape := x.c.source.Main.Outputs[i].Shape
		counts := o.Updates != nil && strings.HasSuffix(o.Updates.Path, "/global_step")
		if shape.Rank() > 0 || !counts && (o.Updates != nil || o.Guard || !shape.DType.IsFloat()) {
			continue
		}
		flat := reflect.MakeSlice(reflect.SliceOf(shape.DType.GoType()), 1, 1)
		if ok, err := x.e.Peek(outs[i], flat.Interface()); !ok || err != nil {
			continue // whoever asks for it is told
		}
		value := shapes.ConvertTo[float64](flat.Index(0).Interface())
		if counts {
			step = int64(value)
		} else {
			results = append(results, value)
		}
	}
	return results, step
}

// Limit is how much memory a device has, by rank; 0: that is not known.
func (e *Engine) Limit(rank int) int64 {
	bytes, _ := e.opts.limit(rank)
	return bytes
}
