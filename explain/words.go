// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/easyparallel/epl/ir"
)

// InWords lists what a user knows of a model, one thing a line, by name and value with a tab in between: where models of workers
// differ, this is told. Everything else that can differ follows from it, from the configuration, or from what EPL does.
func InWords(p *ir.Program) string {
	var w strings.Builder
	line := func(name, value string) { fmt.Fprintf(&w, "%s\t%s\n", clean(name), clean(value)) }
	at := func(s ir.Source) string {
		if s == "" {
			return ""
		}
		return ", at " + string(s)
	}
	for _, v := range p.Variables {
		kind := ""
		if v.Trainable {
			kind = ", trainable"
		}
		line(fmt.Sprintf("variable %q", v.Path), ir.ShapeText(v.Param.Shape)+kind+at(v.Param.Op.Source))
	}
	for i, v := range p.Inputs {
		line(fmt.Sprintf("input %d", i), ir.ShapeText(v.Shape))
	}
	for _, t := range p.TaskGraphs {
		line(fmt.Sprintf("TaskGraph %d", t.ID), strings.TrimSpace(t.Title()+" "+t.Strategy())+at(t.Source))
	}
	for _, c := range p.Collections {
		for _, v := range c.Values {
			line("collection "+c.Key, ir.ShapeText(v.Shape)+at(v.Op.Source))
		}
	}
	// Ops by the user's line that made them, so that one more op does not make all that follow differ. Backward follows forward.
	t := texter{attrs: map[ir.Attrs]string{}, sizes: map[string]int64{}}
	ops := slices.DeleteFunc(slices.Clone(p.Main.Ops), func(op *ir.Op) bool {
		_, param := op.Attrs.(*ir.Parameter)
		return param || op.Phase == ir.Backward || op.Source == ""
	})
	for _, same := range grouped(ops, func(op *ir.Op) ir.Source { return op.Source }) {
		var texts []string
		for _, op := range same {
			text := string(op.Type())
			if a := t.attrsText(op.Attrs); a != "" {
				text += " " + a
			}
			for _, v := range op.Outputs {
				text += " " + ir.ShapeText(v.Shape)
			}
			texts = append(texts, text)
		}
		line("what "+string(same[0].Source)+" computes", strings.Join(texts, ", "))
	}
	return w.String()
}

// clean keeps a name or value on its line.
func clean(s string) string { return strings.NewReplacer("\t", " ", "\n", " ").Replace(s) }
