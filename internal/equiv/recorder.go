package equiv

import (
	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
	"github.com/easyparallel/epl/runtime"
)

// Compiler makes an executable of the inner backend out of a recorded program.
type Compiler func(inner compute.Backend, p *ir.Program) (compute.Executable, error)

// Recorder is the smallest engine: it keeps the programs that GoMLX built, and runs them as its compiler likes. Tests
// use it to look at programs as recorded, and to run them in ways that EPL itself does not offer.
type Recorder struct {
	*runtime.Data
	Programs []*ir.Program // as recorded, in order

	inner   compute.Backend
	compile Compiler
}

var _ record.Engine = (*Recorder)(nil)

// NewRecorder makes a backend for GoMLX, on [Plain], with the engine behind it. A nil compiler runs programs op by op.
func NewRecorder(compile Compiler) (compute.Backend, *Recorder) {
	if compile == nil {
		compile = emit.Program
	}
	inner := Plain()
	r := &Recorder{Data: runtime.NewData(inner), inner: inner, compile: compile}
	b := record.NewBackend(inner, r, record.Options{})
	r.Owner = b
	return b, r
}

// Compile implements record.Engine.
func (r *Recorder) Compile(p *ir.Program) (compute.Executable, error) {
	r.Programs = append(r.Programs, p.Clone())
	exec, err := r.compile(r.inner, p)
	if err != nil {
		return nil, err
	}
	return runtime.NewExecutable(p.Name, r.Data, exec), nil
}

// Finalize implements record.Engine.
func (r *Recorder) Finalize() { r.inner.Finalize() }
