package cpu

import (
	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// fallbackCompiler compiles a segment for another backend.
type fallbackCompiler func(*ir.Segment) (compute.Executable, error)

// fallback is an op that GoMLX's own backend runs.
type fallback struct {
	op     *ir.Op
	inputs []*ir.Value
	exec   compute.Executable
}

func newFallback(op *ir.Op, inputs []*ir.Value, compile fallbackCompiler) (*fallback, error) {
	exec, err := compile(&ir.Segment{Name: op.String(), Inputs: inputs, Ops: []*ir.Op{op}, Outputs: op.Outputs})
	if err != nil {
		return nil, errors.WithMessagef(err, "%s", op)
	}
	return &fallback{op, inputs, exec}, nil
}
