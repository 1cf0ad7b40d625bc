// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Options say what a module is besides its operations.
type Options struct {
	// Name is that of the module, for people who read dumps; empty: that of the segment.
	Name string
	// Replicas is how many devices run the module together; 0 is 1.
	Replicas int
	// Alias says which inputs give their memory to which outputs, of the same type, by index. Such inputs are gone after a run.
	Alias map[int]int
	// Donor marks inputs that XLA may use for whatever output fits, and that are gone after a run; nil: none.
	Donor []bool
	// TF32 allows products and convolutions of float32 to round their operands to 10 bits, which is faster and 1e-3 off.
	TF32 bool
	// CUDNN computes attention in half precision by cuDNN, where it can ([ir.FusesAttention]), and calls kernels of our own: the module is for
	// CUDA then.
	CUDNN bool
	// NoKernels writes out the functions that there are kernels of our own for.
	NoKernels bool
	// Extra, if set, writes operations that this package refuses. It returns their results; nil: it does not know the operation either.
	Extra func(w *Writer, op *ir.Op, in []Value) []Value
}

// Module writes a segment as a StableHLO module:
//
//	text, err := hlo.Module(emit.Whole(program), hlo.Options{Alias: map[int]int{1: 0}})
//	…
//	executable, err := client.Compile([]byte(text), pjrt.CompileOptions{})
func Module(s *ir.Segment, o Options) (text string, err error) {
	text, _, err = module(s, o, false)
	return text, err
}

// Numbered is [Module], and tells which op an operation was written for: its location is the number of the op in ops. XLA keeps locations, as the names of
// operations in metadata. Segments that differ in places of the model alone have the same text.
func Numbered(s *ir.Segment, o Options) (text string, ops []*ir.Op, err error) {
	return module(s, o, true)
}

func module(s *ir.Segment, o Options, numbered bool) (text string, ops []*ir.Op, err error) {
	w := &Writer{out: &strings.Builder{}, options: o, numbered: numbered, values: map[*ir.Value]Value{}, funcs: map[*ir.Func]int{}}
	defer func() {
		// A refusal, or a program that was not verified: its attributes do not fit its shapes.
		if r := recover(); r != nil {
			where := ""
			if w.op != nil {
				where = w.op.String() + ": "
			}
			text, ops, err = "", nil, errors.Errorf("epl: segment %q: XLA: %s%v", s.Name, where, r)
		}
	}()
	name, replicas := o.Name, max(o.Replicas, 1)
	if name == "" {
		name = s.Name
	}
	w.line("module @%s attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = %d : i32} {", identifier(name), replicas)
	w.indent++
	w.main(s)
	for i := 0; i < len(w.called); i++ { // a function may call more
		w.function(i)
	}
	w.indent--
	w.line("}")
	return w.out.String(), w.ops, nil
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9_]+`)

// identifier is a name that MLIR takes without quotes.
func identifier(name string) string {
	return "m_" + strings.Trim(notInName.ReplaceAllString(name, "_"), "_")
}

// Value is a result of an operation in the text.
type Value struct {
	name  string
	Shape shapes.Shape
}

// ok tells whether the value is there: optional operands may be absent.
func (v Value) ok() bool { return v.name != "" }

func (v Value) dims() []int { return v.Shape.Dimensions }

func (v Value) rank() int { return v.Shape.Rank() }

// refusal says why there is no text for an operation. It travels as a panic, up to Module.
type refusal string

func refuse(format string, args ...any) { panic(refusal(fmt.Sprintf(format, args...))) }

// rule writes one operation of the IR and returns its results. Absent operands are zero.
type rule func(w *Writer, op *ir.Op, in []Value) []Value

// table has every operation that can be written. Each file adds its family.
var table = map[ir.OpType]rule{}

// refused are the operations without a text, with the reason.
var refused = map[ir.OpType]string{
	ir.OpParameter:                "it is an input of the segment",
	ir.OpInstance:                 "the number of an instance is an input of the segment",
	ir.OpInstanceCount:            "the number of instances is an input of the segment",
	ir.OpPresent:                  "whether there is an instance is an input of the segment",
	ir.OpPosition:                 "the position of a device is an input of the segment",
	ir.OpMerge:                    "instances are merged between segments",
	ir.OpFillEnd:                  "it is to be lowered first",
	ir.OpReshard:                  "it is not local: devices exchange values between segments",
	ir.OpDynamicShape:             "XLA has no shapes known only at run time",
	ir.OpDynamicDimensionSize:     "XLA has no shapes known only at run time",
	ir.OpDynamicReshape:           "XLA has no shapes known only at run time",
	ir.OpDynamicBroadcastInDim:    "XLA has no shapes known only at run time",
	ir.OpDynamicIota:              "XLA has no shapes known only at run time",
	ir.OpDynamicPad:               "XLA has no shapes known only at run time",
	ir.OpQuantizedEmbeddingLookup: "there is no text for quantised values",
	ir.OpFusedQuantizedDense:      "there is no text for quantised values",
}

func add(family map[ir.OpType]rule) {
	for t, f := range family {
		table[t] = f
	}
}

// Writer writes the operations of a module. [Options.Extra] gets it.
type Writer struct {
	out      *strings.Builder
	options  Options
	indent   int
	next     int // the number of the next value
	numbered bool
	channel  int // that of the last collective
	values   map[*ir.Value]Value
	op       *ir.Op           // that is being written
	ops      []*ir.Op         // that were written, if they are numbered
	number   int              // of op in ops
	funcs    map[*ir.Func]int // functions that are called, by where they are in called
	called   []*ir.Func
}

func (w *Writer) line(format string, args ...any) {
	w.out.WriteString(strings.Repeat("  ", w.indent))
	fmt.Fprintf(w.out, format, args...)
	w.out.WriteByte('\n')
}

// define names new values.
func (w *Writer) define(of ...shapes.Shape) []Value {
	vs := make([]Value, len(of))
	for i, s := range of {
		vs[i] = Value{fmt.Sprintf("%%v%d", w.next), s}
		w.next++
	}
	return vs
}

// main writes the function that runs.
func (w *Writer) main(s *ir.Segment) {
	args := make([]string, len(s.Inputs))
	donated := map[int]bool{} // outputs that have the memory of an input
	for i, v := range s.Inputs {
		w.op = v.Op
		arg := w.define(v.Shape)[0]
		w.values[v] = arg
		args[i] = arg.name + ": " + typeText(v.Shape)
		if to, ok := w.options.Alias[i]; ok {
			if to < 0 || to >= len(s.Outputs) || donated[to] || typeText(s.Outputs[to].Shape) != typeText(v.Shape) {
				refuse("input %d cannot give its memory to output %d", i, to)
			}
			donated[to] = true
			args[i] += fmt.Sprintf(" {tf.aliasing_output = %d : i32}", to)
		} else if i < len(w.options.Donor) && w.options.Donor[i] {
			args[i] += " {jax.buffer_donor = true}"
		}
	}
	results := make([]shapes.Shape, len(s.Outputs))
	for i, v := range s.Outputs {
		results[i] = v.Shape
	}
	w.signature("public @main", args, results)
	for _, op := range s.Ops {
		w.write(op)
	}
	w.op = nil
	w.close(w.use(s.Outputs))
}

// function writes a function that is called.
func (w *Writer) function(i int) {
	f := w.called[i]
	args := make([]string, len(f.Params))
	var results []shapes.Shape
	for i, p := range f.Params {
		w.values[p] = w.define(p.Shape)[0]
		args[i] = w.values[p].name + ": " + typeText(p.Shape)
	}
	for _, v := range f.Outputs {
		results = append(results, v.Shape)
	}
	w.signature(fmt.Sprintf("private @f%d", i), args, results)
	w.close(w.body(f))
}

func (w *Writer) signature(name string, args []string, results []shapes.Shape) {
	w.line("func.func %s(%s) -> (%s) {", name, strings.Join(args, ", "), typesText(results))
	w.indent++
}

func (w *Writer) close(results []Value) {
	if len(results) == 0 {
		w.line("return")
	} else {
		w.line("return %s : %s", names(results), typesText(shapesOf(results)))
	}
	w.indent--
	w.line("}")
}

// body writes the ops of a function whose parameters are values already, and returns its results.
func (w *Writer) body(f *ir.Func) []Value {
	now, number := w.op, w.number
	for _, op := range f.Ops {
		if _, ok := op.Attrs.(*ir.Parameter); !ok {
			w.write(op)
		}
	}
	w.op, w.number = now, number
	return w.use(f.Outputs)
}

// use finds what was written for values.
func (w *Writer) use(vs []*ir.Value) []Value {
	r := make([]Value, len(vs))
	for i, v := range vs {
		if v == nil {
			continue
		}
		var ok bool
		if r[i], ok = w.values[v]; !ok {
			refuse("%s is not computed before it is used", v)
		}
	}
	return r
}

// write writes one op.
func (w *Writer) write(op *ir.Op) {
	w.op = op
	if w.numbered {
		w.number, w.ops = len(w.ops), append(w.ops, op)
	}
	in := w.use(op.Inputs)
	write, known := table[op.Type()]
	reason, isRefused := refused[op.Type()]
	var out []Value
	switch {
	case op.IsReshard() && isLocal(op):
		out = in[:1]
	case known:
		out = write(w, op, in)
	case !isRefused:
		refuse("there is no text for this operation")
	default:
		if w.options.Extra != nil {
			out = w.options.Extra(w, op, in)
		}
		if out == nil {
			refuse("%s", reason)
		}
	}
	if len(out) != len(op.Outputs) {
		refuse("it has %d results in the text, not %d", len(out), len(op.Outputs))
	}
	for i, v := range op.Outputs {
		if got, want := typeText(out[i].Shape), typeText(v.Shape); got != want {
			refuse("%s is %s in the text, not %s", v, got, want)
		}
		w.values[v] = out[i]
	}
}

// isLocal tells whether a change of placement leaves what the device has as it is.
func isLocal(op *ir.Op) bool {
	a, b := op.Inputs[0].Shape, op.Outputs[0].Shape
	return !op.IsTransfer() && !op.IsExchange() && a.DType == b.DType && slices.Equal(a.Dimensions, b.Dimensions)
}

// region is a function inside an operation.
type region struct {
	params []shapes.Shape
	body   func(args []Value) []Value
}

// emit writes an operation with results of the given shapes.
func (w *Writer) emit(name string, in []Value, attrs []string, regions []region, out ...shapes.Shape) []Value {
	results := w.define(out...)
	var s strings.Builder
	if len(results) > 0 {
		s.WriteString(names(results) + " = ")
	}
	fmt.Fprintf(&s, "%q(%s)", name, names(in))
	for i, r := range regions {
		if i == 0 {
			s.WriteString(" ({")
		} else {
			s.WriteString("}, {")
		}
		w.line("%s", s.String())
		s.Reset()
		w.region(r)
	}
	if len(regions) > 0 {
		s.WriteString("})")
	}
	if len(attrs) > 0 {
		fmt.Fprintf(&s, " {%s}", strings.Join(attrs, ", "))
	}
	to := typesText(out)
	if len(out) != 1 {
		to = "(" + to + ")"
	}
	if w.numbered && w.op != nil {
		to += fmt.Sprintf(` loc("%d")`, w.number)
	}
	w.line("%s : (%s) -> %s", s.String(), typesText(shapesOf(in)), to)
	return results
}

// region writes the function of an operation.
func (w *Writer) region(r region) {
	args := w.define(r.params...)
	if len(args) > 0 {
		texts := make([]string, len(args))
		for i, a := range args {
			texts[i] = a.name + ": " + typeText(a.Shape)
		}
		w.line("^bb0(%s):", strings.Join(texts, ", "))
	}
	w.indent++
	results := r.body(args)
	w.line(`"stablehlo.return"(%s) : (%s) -> ()`, names(results), typesText(shapesOf(results)))
	w.indent--
}

// one writes an operation of StableHLO with one result.
func (w *Writer) one(name string, out shapes.Shape, in []Value, attrs ...string) Value {
	return w.emit("stablehlo."+name, in, attrs, nil, out)[0]
}

func shapesOf(vs []Value) []shapes.Shape {
	r := make([]shapes.Shape, len(vs))
	for i, v := range vs {
		r[i] = v.Shape
	}
	return r
}

func outputs(op *ir.Op) []shapes.Shape {
	r := make([]shapes.Shape, len(op.Outputs))
	for i, v := range op.Outputs {
		r[i] = v.Shape
	}
	return r
}

func names(vs []Value) string {
	r := make([]string, len(vs))
	for i, v := range vs {
		r[i] = v.name
	}
	return strings.Join(r, ", ")
}
