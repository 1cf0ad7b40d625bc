// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"path"

	"github.com/easyparallel/epl/ir"
)

// modelScopes finds for which scope of the model each op computes. GoMLX does not tell: a scope is a value that model functions pass around.
// But variables have paths. An op that reads variables is in their scope; one that reads none is where its inputs come from. Ops of backward are in the
// scope of the forward op that they belong to, and those of apply in that of the variable whose gradient they read.
func modelScopes(p *ir.Program) {
	n := len(p.Main.Ops)
	s := &scoper{weights: map[*ir.Value]bool{}, of: make(map[*ir.Value]string, n)}
	for _, v := range p.Variables {
		s.weights[v.Param], s.of[v.Param] = true, scopeOf(v.Path)
	}
	updated := make(map[*ir.Value]string, n)
	for _, g := range p.Gradients {
		updated[g.Value], updated[g.Variable.Param] = scopeOf(g.Variable.Path), scopeOf(g.Variable.Path)
	}
	for _, phase := range []ir.Phase{ir.Forward, ir.Backward, ir.Apply} {
		if phase == ir.Apply { // its own state is in scopes of the optimizer's
			s.weights, s.of = map[*ir.Value]bool{}, updated
		}
		for _, op := range p.Main.Ops {
			if op.Phase == phase && !op.IsLeaf() {
				s.place(op)
			}
		}
	}
}

// scopeOf is the scope of a variable, "" if it is the root.
func scopeOf(variable string) string {
	if dir := path.Dir(variable); dir != "/" && dir != "." {
		return dir
	}
	return ""
}

type scoper struct {
	weights map[*ir.Value]bool   // variables, and what is computed from nothing else
	of      map[*ir.Value]string // scopes of values
}

// place finds the scope of an op whose inputs have theirs.
func (s *scoper) place(op *ir.Op) {
	if op.Of != nil {
		op.Scope = op.Of.Op.Scope
	} else {
		op.Scope = s.among(op)
	}
	for _, v := range op.Outputs {
		if _, given := s.of[v]; !given { // that of a gradient is
			s.of[v] = op.Scope
		}
	}
}

// among joins the scopes of an op's inputs: those of weights, if there are any, count alone.
func (s *scoper) among(op *ir.Op) (scope string) {
	read, only := "", true
	op.Uses(func(v *ir.Value) {
		switch {
		case s.weights[v]:
			read = join(read, s.of[v])
		case !v.Op.IsLeaf() || s.of[v] != "":
			only = false
			scope = join(scope, s.of[v])
		}
	})
	if only && read != "" {
		for _, v := range op.Outputs {
			s.weights[v] = true
		}
	}
	return cmp.Or(read, scope)
}

// join is where a value is that is made of two: next to both, if they are neighbours, as query and key of an attention are; else in the scope of the second,
// as the sum of a block and of what goes around it.
func join(a, b string) string {
	switch parent := path.Dir(a); {
	case a == "" || b == "":
		return cmp.Or(a, b)
	case a != b && parent == path.Dir(b) && parent != "/":
		return parent
	}
	return b
}
