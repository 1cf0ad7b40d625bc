// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// String prints the whole program, as text that [Parse] reads back.
func (p *Program) String() string {
	var w bytes.Buffer
	p.write(&w, printer{})
	return w.String()
}

// Fprint prints the program for people: like [Program.String], but with long constants left out, so that it does not
// parse back when there are any.
func (p *Program) Fprint(w io.Writer) error {
	var s bytes.Buffer
	p.write(&s, printer{elide: true})
	_, err := s.WriteTo(w)
	return err
}

// Text prints the op as one line of program text, with long constants and the bodies of closures left out.
func (op *Op) Text() string {
	w := printer{out: &bytes.Buffer{}, elide: true, outline: true}
	w.op(op)
	return strings.TrimSpace(w.out.String())
}

type printer struct {
	out      *bytes.Buffer
	flush    func() // is called between lines; nil: nobody waits for them
	elide    bool   // leave out long constants
	outline  bool   // leave out bodies of closures
	bare     bool   // leave out the lines and scopes of the user
	indent   int
	closures map[*Func]int
}

func (w *printer) printf(format string, args ...any) { fmt.Fprintf(w.out, format, args...) }

// text and number print what every op has, which formats would take most of the time for.
func (w *printer) text(text string) { w.out.WriteString(text) }

func (w *printer) number(before string, n int) {
	w.out.WriteString(before)
	w.out.Write(strconv.AppendInt(w.out.AvailableBuffer(), int64(n), 10))
}

func (p *Program) write(out *bytes.Buffer, w printer) {
	w.out, w.closures = out, map[*Func]int{}
	w.printf("program %q\n", p.Name)
	if len(p.Passes) > 0 {
		w.printf("passes")
		for _, name := range p.Passes {
			w.printf(" %q", name)
		}
		w.printf("\n")
	}
	if l := p.Local; l != nil {
		w.printf("instances %d %d", l.Replicas, l.MicroBatches)
		if l.Shares != nil {
			w.printf(" shares")
			for _, share := range l.Shares {
				w.printf(" %d", share)
			}
		}
		w.printf("\n")
	}
	for _, t := range p.TaskGraphs {
		w.printf("taskgraph %d %q %s(%d)", t.ID, t.Name, t.Kind, t.Devices)
		for _, pin := range t.Pins {
			w.printf(" pin %q %d", pin.Variable, pin.Dim)
		}
		w.flag(" default", t.Default)
		w.flag(" implicit", t.Implicit)
		w.source(t.Source)
		w.printf("\n")
	}
	for _, s := range p.Stages {
		w.printf("stage")
		for _, t := range s.TaskGraphs {
			w.printf(" taskgraph %d", t.ID)
		}
		for _, at := range s.Places {
			w.printf(" place %d", at)
		}
		for _, k := range s.Axes {
			w.printf(" axis %d", k)
		}
		w.weights(s.Weights)
		w.printf("\n")
	}
	for _, v := range p.Variables {
		w.printf("variable %q %s", v.Path, v.Param)
		w.flag(" trainable", v.Trainable)
		if v.Update != nil {
			w.printf(" update %s", v.Update)
		}
		if v.TaskGraph != nil {
			w.printf(" taskgraph %d", v.TaskGraph.ID)
		}
		w.printf("\n")
	}
	for _, v := range p.Inputs {
		w.printf("input %s\n", v)
	}
	for _, g := range p.Gradients {
		w.printf("gradient %s = %s\n", g.Variable.Param, g.Value)
	}
	if p.Loss != nil {
		w.printf("loss %s\n", p.Loss)
	}
	if p.OutputsKnown {
		w.printf("outputs")
		for _, o := range p.Outputs {
			switch {
			case o.Guard:
				w.printf(" guard")
			case o.Always:
				w.printf(" always %s", o.Updates.Param)
			case o.Updates != nil:
				w.printf(" update %s", o.Updates.Param)
			default:
				w.printf(" result")
			}
		}
		w.printf("\n")
	}
	for _, c := range p.Collections {
		w.printf("collection %q", c.Key)
		for _, v := range c.Values {
			w.printf(" %s", v)
		}
		w.printf("\n")
	}
	for _, f := range p.Funcs {
		w.printf("func %q ", f.Name)
		w.body(f)
		w.printf("\n")
	}
	w.printf("main ")
	w.body(p.Main)
	w.printf("\n")
}

func (w *printer) flag(word string, set bool) {
	if set {
		w.text(word)
	}
}

func (w *printer) source(s Source) {
	if s != "" && !w.bare {
		w.printf(" %s", strconv.Quote(string(s)))
	}
}

func (w *printer) body(f *Func) {
	w.printf("{\n")
	w.indent++
	for _, op := range f.Ops {
		w.op(op)
		if w.flush != nil {
			w.flush()
		}
	}
	w.printf("%sreturn", strings.Repeat("  ", w.indent))
	w.values(" ", f.Outputs)
	w.indent--
	w.printf("\n%s}", strings.Repeat("  ", w.indent))
}

func (w *printer) values(before string, vs []*Value) {
	for i, v := range vs {
		if i > 0 {
			before = ", "
		}
		w.text(before)
		w.value(v)
	}
}

// value prints what [Value.String] does.
func (w *printer) value(v *Value) {
	if v == nil {
		w.text("_")
		return
	}
	if w.number("%", v.Op.ID); v.Index != 0 {
		w.number(".", v.Index)
	}
}

func (w *printer) op(op *Op) {
	for range w.indent {
		w.text("  ")
	}
	w.number("%", op.ID)
	w.text(" = ")
	w.text(string(op.Type()))
	w.text("(")
	w.values("", op.Inputs)
	w.text(")")
	if a := attrsText(op.Attrs, w.elide); a != "" {
		w.text(" ")
		w.text(a)
	}
	if len(op.Funcs) > 0 {
		w.printf(" [")
		for i, f := range op.Funcs {
			if i > 0 {
				w.printf(", ")
			}
			w.function(f)
		}
		w.printf("]")
	}
	w.text(" ->")
	for i, v := range op.Outputs {
		if i > 0 {
			w.text(",")
		}
		w.text(" ")
		w.out.Write(appendShape(w.out.AvailableBuffer(), v.Shape))
		for axis, p := range v.placed {
			if p.Placement != (Placement{}) {
				w.printf(" on %s of %d", Axis(axis), p.Devices)
				w.weights(p.Weights)
				w.printf(" %s", p.Placement)
			}
		}
	}
	w.text(" : ")
	w.text(op.Phase.String())
	w.flag(" varying", op.Varying)
	w.flag(" pershard", op.PerShard)
	if op.TaskGraph != nil {
		w.number(" taskgraph ", op.TaskGraph.ID)
	}
	if op.Place != 0 {
		w.number(" place ", op.Place)
	}
	if op.Region != 0 {
		w.number(" region ", op.Region)
	}
	w.flag(" keep", op.Keep)
	if op.Origin != Recorded {
		w.text(" by ")
		w.text(op.Origin.String())
	}
	if op.Twin != nil {
		w.text(" twin")
		w.values(" ", op.Twin)
	}
	if op.Of != nil {
		w.text(" of ")
		w.value(op.Of)
	}
	if op.Scope != "" && !w.bare {
		w.printf(" in %s", strconv.Quote(op.Scope))
	}
	w.source(op.Source)
	w.text("\n")
}

// function prints a reference to a named function, or a closure: its body where it is first used.
func (w *printer) function(f *Func) {
	if f.Parent == nil {
		w.printf("func %q", f.Name)
		return
	}
	n, seen := w.closures[f]
	if !seen && !w.outline {
		n = len(w.closures)
		w.closures[f] = n
	}
	w.printf("closure %d", n)
	if !seen && !w.outline {
		w.printf(" ")
		w.body(f)
	}
}
