// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/easyparallel/epl/ir"
)

// Every gradient function of GoMLX is wrapped, once, before any graph exists: while the gradient of node n is built,
// ops take n's TaskGraph. On other backends the wrapper does nothing.
func init() {
	for t, vjp := range graph.VJPRegistration {
		graph.VJPRegistration[t] = func(n *graph.Node, v []*graph.Node, s shapes.Shape) []*graph.Node {
			value := ValueOf(n)
			if value == nil {
				return vjp(n, v, s)
			}
			b := value.Builder()
			b.graph = n.Graph()
			defer b.enterVJP(value.Op)()
			to := vjp(n, v, s)
			b.differentiated(n, v, to)
			return to
		}
	}
}

// enterVJP lets ops follow the forward op until the returned function is called. In the backward phase the TaskGraph
// then stays: what comes next most likely belongs to the same op. A model that calls Gradient itself is still inside
// its own scope, which is restored.
func (b *Builder) enterVJP(forward *ir.Op) (leave func()) {
	before := b.current
	outer := b.of
	b.current, b.of = forward.TaskGraph, forward
	return func() {
		b.of = outer
		if b.phase != ir.Backward || outer != nil {
			b.current = before
		}
	}
}
