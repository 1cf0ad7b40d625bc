// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import "github.com/easyparallel/epl/ir"

// early tells whether variables of a program may get their first values while it is compiled. A plan that does not fit into memory has to be refused before
// they have taken it, so they must be small beside that of the machine.
func (o Options) early(p *ir.Program) bool {
	const small = 16 // a part of the memory that several workers of a machine can take, too
	bytes := int64(0)
	for _, v := range p.Variables {
		bytes += v.Param.Shape.ByteSize()
	}
	return bytes <= o.Host/small
}

// beside calls f on another goroutine, which wait waits for. If it panics, so does what was to come after it.
func beside(f func()) (wait func()) {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		f()
	}()
	return func() {
		if p := <-done; p != nil {
			panic(p)
		}
	}
}
