// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"math"
	"slices"

	"github.com/easyparallel/epl/ir"
)

// GELU is x·Φ(x), where Φ(x) = ½(1 + erf(x/√2)). Φ(x) is nearly σ(x·(g0 + z(g1 − g2·z))), where z is x², but at most g3: x·Φ(x) is off by 2.5e-5,
// and its derivative by 1.1e-4, which is far less than what half precision rounds. Backward needs one exponential then, as forward does.
const g0, g1, g2, g3 = 1.595016, 0.0740113, 0.00070304, 36.

// What GoMLX and its autodiff make of GELU. The derivative of erf is of its operand, x/√2.
var (
	geluX     = anything()
	geluErfOf = of(ir.OpMul, geluX, exactly(math.Sqrt2/2))
	geluPhi   = of(ir.OpMul, of(ir.OpAdd, of(ir.OpErf, geluErfOf), exactly(1)), exactly(0.5))
	geluDErf  = of(ir.OpMul, of(ir.OpExp, of(ir.OpNeg, of(ir.OpMul, geluErfOf, geluErfOf))), exactly(2/math.Sqrt(math.Pi)))
)

// gelu computes GELU by way of a sigmoid, and lets backward compute it again.
func gelu(p *ir.Program, o Options) (int, error) {
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		if op.Type() == ir.OpMul && op.Phase == ir.Forward && is32(op.Outputs[0]) {
			if m := geluPhi.find(op.Outputs[0], nil, nil); m != nil {
				r.gelu(m.value[geluPhi], m.value[geluErfOf], m.value[geluX])
			}
		}
	}
	if r.found > 0 {
		o.note(counted(r.found, "GELU") + " by way of a sigmoid, off by 2.5e-5 at most; backward computes it again")
	}
	return r.finish(), nil
}

// gelu rewrites one GELU.
func (r *rewriter) gelu(phi, erfOf, x *ir.Value) {
	readers, ok := r.backward(phi)
	squares, ok2 := r.backward(erfOf)
	others, ok3 := r.backward(x)
	if !ok || !ok2 || !ok3 || len(readers) == 0 || len(squares) != 1 || !x.Shape.Equal(phi.Shape) {
		return
	}
	derivative := squares[0].Outputs[0]
	for range 3 { // of the square: its negative, the exponential, and that times a number
		if next := r.only(derivative); next != nil {
			derivative = next.Outputs[0]
		}
	}
	if geluDErf.find(derivative, nil, map[*pattern]*ir.Value{geluErfOf: erfOf}) == nil {
		return
	}
	r.found++
	forward := place{r, phi.Op}
	y, _ := forward.phi(forward.exact(x))
	r.by[phi] = y

	at := place{r, r.first(slices.Concat(readers, squares, others)...)}
	again := at.exact(at.again(x))
	y, z := at.phi(again)
	read(readers, phi, y)
	read(others, x, again)
	// Φ' is Φ(1−Φ) times the derivative of what the sigmoid reads; the derivative of erf is multiplied by ½/√2 where it is read.
	d := at.mul(at.mul(y, at.sub(1., y)), at.add(at.mul(z, at.sub(3*g1, at.mul(z, 5*g2))), g0))
	r.by[derivative] = at.mul(d, 2*math.Sqrt2)
}

// phi is Φ(x), and the square that it is computed from.
func (at place) phi(x *ir.Value) (y, z *ir.Value) {
	z = at.of(&ir.Min{}, at.mul(x, x), g3)
	u := at.mul(x, at.add(at.mul(z, at.sub(g1, at.mul(z, g2))), g0))
	return at.of(&ir.Logistic{}, u), z
}
