// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"sync/atomic"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
)

// Engine runs recorded programs and owns the buffers.
type Engine interface {
	// Compile plans and prepares a program. The program is the engine's from then on.
	Compile(*ir.Program) (compute.Executable, error)
	// DataInterface moves data to and from devices.
	compute.DataInterface
	// Finalize releases what the engine holds.
	Finalize()
	// Closed is why nothing runs any more; nil: it does.
	Closed() error
}

// Starter is an engine that can do something else while it compiles a program.
type Starter interface {
	// CompileBeside is Compile. It calls first on another core, if it may, and returns after it: once, or never.
	CompileBeside(p *ir.Program, first func()) (compute.Executable, error)
}

// Backend is the compute.Backend that GoMLX programs are built against.
type Backend struct {
	engine Engine
	Engine // the data interface
	opts   Options
	final  atomic.Bool
	// Owner is who made the backend.
	Owner any
	// KeepGradients: training programs that are built from now on keep their gradients in variables of the optimizer.
	KeepGradients atomic.Bool
	// Finally, if it is not nil, is done once before the engine is finalized.
	Finally func()
}

var _ compute.Backend = (*Backend)(nil)

// Options of a backend.
type Options struct {
	// Over describes what runs the programs, for people.
	Over string
	// Default is the strategy of ops outside every scope; nil: none.
	Default *Strategy
	// AutoParallel forbids annotations: EPL chooses the strategies.
	AutoParallel bool
	// ClipAfterReduction clips reduced gradients; otherwise those of each instance.
	ClipAfterReduction bool
	// HalfType is the type of mixed precision; invalid: it is off.
	HalfType dtypes.DType
	// LossScale is what the optimizer wrapper multiplies the loss by; nil: nothing.
	LossScale *LossScale
	// NaN is the value of reliability.nan; "": as ignore.
	NaN string
}

// SkippedSteps is the name of the optimizer's variable that counts the steps that a loss scale has skipped in a row, and that no smaller
// scale would have saved: the runtime looks at it.
const SkippedSteps = "epl_skipped_steps"

// LossScale keeps small gradients of mixed precision from vanishing.
type LossScale struct {
	// Start is the scale of the first step.
	Start float64
	// Dynamic: the scale grows after good steps, and shrinks when gradients are not finite.
	Dynamic bool
}

// NewBackend records programs for the engine. They are the same whatever the engine runs them on.
func NewBackend(engine Engine, opts Options) *Backend {
	return &Backend{engine: engine, Engine: engine, opts: opts}
}

// Name implements compute.Backend.
func (b *Backend) Name() string { return "epl" }

// String implements compute.Backend.
func (b *Backend) String() string { return "epl" }

// Description implements compute.Backend.
func (b *Backend) Description() string {
	return fmt.Sprintf("Easy Parallel Library over %s", b.opts.Over)
}

// NumDevices implements compute.Backend. GoMLX sees one device: EPL deals with the others.
func (b *Backend) NumDevices() int { return 1 }

// DeviceDescription implements compute.Backend.
func (b *Backend) DeviceDescription(compute.DeviceNum) string { return b.Description() }

// Capabilities implements compute.Backend: what can be recorded. What an engine lacks of that is written out later, or refused.
func (b *Backend) Capabilities() compute.Capabilities { return capabilities().Clone() }

// Builder implements compute.Backend.
func (b *Backend) Builder(name string) compute.Builder { return newBuilder(b, name) }

// Finalize implements compute.Backend.
func (b *Backend) Finalize() {
	if !b.final.Swap(true) {
		if b.Finally != nil {
			b.Finally()
		}
		b.engine.Finalize()
	}
}

// IsFinalized implements compute.Backend. A backend whose Env was closed answers all that is asked of it with an error, which
// says more than GoMLX's own about a finalized one, and its buffers can be finalized at any time. One that GoMLX made is
// finalized by whoever has it.
func (b *Backend) IsFinalized() bool { return b.Finally != nil && b.final.Load() }
