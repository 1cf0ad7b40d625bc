package cpu_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

func TestRandomBitsAreThoseOfTheBackend(t *testing.T) {
	oracle, list := opByOp(t), engines(t)
	defer oracle.Finalize()
	for _, s := range []shapes.Shape{
		shapes.Make(dtypes.Uint64, 1), shapes.Make(dtypes.Uint32, 3), shapes.Make(dtypes.Uint8, 13), shapes.Make(dtypes.Uint32, 70001), shapes.Make(dtypes.Uint64, 4096),
	} {
		p := ir.NewProgram(fmt.Sprint("random bits of ", s))
		state := shapes.Make(dtypes.Uint64, 3)
		in := p.NewOp(&ir.Parameter{Name: "arg0", Shape: state}, nil, state)
		bits := p.NewOp(&ir.RNGBitGenerator{Shape: s}, in.Outputs, state, s)
		again := p.NewOp(&ir.RNGBitGenerator{Shape: s}, bits.Outputs[:1], state, s)
		for _, op := range []*ir.Op{in, bits, again} {
			p.Main.Append(op)
		}
		p.Main.Outputs = append(append([]*ir.Value{}, bits.Outputs...), again.Outputs...)
		inputs := []any{[]uint64{1, 1 << 63, 77}}
		want := execute(t, oracle, p, inputs)
		for name, b := range list {
			got := execute(t, b, p, inputs)
			for i := range want {
				if i%2 == 0 { // the third word of a state is nobody's
					want[i], got[i] = want[i].([]uint64)[:2], got[i].([]uint64)[:2]
				}
				if err := same(want[i], got[i], 0); err != nil {
					t.Errorf("%s: output %d of %s: %v", name, i, s, err)
				}
			}
		}
	}
}
