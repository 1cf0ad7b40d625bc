// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"sync"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// First values of variables are computed beside the compilation of the training program, but not before it is known that there is a plan for it: nothing runs on behalf of one that is refused.

// verdict is whether there is a plan for a program.
type verdict struct {
	once  sync.Once
	given chan struct{}
	runs  bool
}

// give says it. What is said later changes nothing.
func (v *verdict) give(runs bool) {
	if v != nil {
		v.once.Do(func() {
			v.runs = runs
			close(v.given)
		})
	}
}

// awaiting is a program without inputs, such as one of first values, that was compiled beside another. It waits for the verdict.
type awaiting struct {
	compute.Executable
	*verdict
}

// Execute implements compute.Executable.
func (x awaiting) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	if <-x.given; !x.runs {
		return nil, errors.New("epl: it does not run, because a training program that was compiled at the same time is refused")
	}
	return x.Executable.Execute(inputs, donate, device)
}

// forget lets programs that are compiled from now on wait for no verdict, unless there is another one.
func (e *Engine) forget(v *verdict) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.verdict == v {
		e.verdict = nil
	}
}

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
