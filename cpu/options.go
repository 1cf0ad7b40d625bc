// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"

	"github.com/easyparallel/epl/cpu/loop"
)

// options choose what a plan does.
type options struct {
	elementwise bool // elementwise ops on the same elements are fused
	reduce      bool // reductions are fused with others
	views       bool // ops that only move elements are strides
	inPlace     bool // results take the memory of what is read for the last time
	dots        bool // what follows a product runs on its parts while they are in caches
	loops       bool // simple ops of a group that follow each other are one loop
}

// everything is what a device does unless it is told otherwise.
var everything = options{elementwise: true, reduce: true, views: true, inPlace: true, dots: true, loops: true}

// Without switches some of what the engine does off, by the names of EPL_PASSES: "fuse-elementwise", "fuse-reduce",
// "fuse-dot", "views", "in-place", "loops". No bit of a result depends on them.
func Without(names ...string) Option {
	return func(b *Backend) {
		for _, name := range names {
			switch name {
			case "fuse-elementwise":
				b.opts.elementwise = false
			case "fuse-reduce":
				b.opts.reduce = false
			case "views":
				b.opts.views = false
			case "in-place":
				b.opts.inPlace = false
			case "fuse-dot":
				b.opts.dots = false
			case "loops":
				b.opts.loops = false
			default:
				panic(fmt.Sprintf("epl: internal error: the engine for CPUs has no switch %q", name))
			}
		}
	}
}

// compileLoop makes loops of groups; nil: they have none.
func (o options) compileLoop() func(*loop.Program) *loop.Func {
	if !o.loops {
		return nil
	}
	return loop.Compile
}

// fuses tells whether an op, or a group, may become part of a group; reduces: the op is a reduction.
func (o options) fuses(reduces bool, groups ...*group) bool {
	if o.elementwise == o.reduce {
		return o.reduce
	}
	for _, g := range groups {
		reduces = reduces || g.reduces()
	}
	return reduces == o.reduce
}
