package passes

import (
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// On GPUs, elementwise work takes the time that its bytes take to come from memory. So the passes gelu, layer-norm and softmax let backward
// compute values of forward again from what is in memory anyway, such as the result of a product, instead of keeping them as well.
// Barriers keep XLA from taking the two for one.

// rewriter finds patterns in a program as it is: changes wait until the end.
type rewriter struct {
	p      *ir.Program
	index  *analysis.Index
	before map[*ir.Op][]*ir.Op // new ops, by the op in front of which they stand
	by     map[*ir.Value]*ir.Value
	found  int
}

func newRewriter(p *ir.Program) *rewriter {
	unfuseDense(p) // backward adds a bias again, but does not multiply again
	return &rewriter{p: p, index: analysis.Of(p), before: map[*ir.Op][]*ir.Op{}, by: map[*ir.Value]*ir.Value{}}
}

// finish puts the new ops in their places.
func (r *rewriter) finish() int {
	if r.found == 0 {
		return 0
	}
	var ops []*ir.Op
	for _, op := range r.p.Main.Ops {
		ops = append(append(ops, r.before[op]...), op)
	}
	r.p.Main.Ops = ops
	r.p.ReplaceUses(r.by)
	analysis.Sweep(r.p)
	return r.found
}

// backward are the ops of backward that read a value. ok: they belong to the TaskGraph of the op that computes it.
func (r *rewriter) backward(v *ir.Value) (users []*ir.Op, ok bool) {
	ok = true
	for _, user := range r.index.Users(v) {
		if user.Phase == ir.Backward {
			users = append(users, user)
			ok = ok && user.TaskGraph == v.Op.TaskGraph && slices.Contains(user.Inputs, v)
		}
	}
	return users, ok
}

// first is the one that comes first in the program; nil: there is none.
func (r *rewriter) first(ops ...*ir.Op) (first *ir.Op) {
	for _, op := range ops {
		if first == nil || r.index.Position(op) < r.index.Position(first) {
			first = op
		}
	}
	return first
}

// only is the op that alone reads a value; nil: there are others, or none.
func (r *rewriter) only(v *ir.Value) *ir.Op {
	if users := r.index.Users(v); len(users) == 1 {
		return users[0]
	}
	return nil
}

// read makes ops read another value in place of one.
func read(ops []*ir.Op, v, other *ir.Value) {
	for _, op := range ops {
		for i, in := range op.Inputs {
			if in == v {
				op.Inputs[i] = other
			}
		}
	}
}

// place is where new ops stand: in front of another.
type place struct {
	*rewriter
	next *ir.Op
}

// put makes an op.
func (at place) put(attrs ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
	op := at.p.NewOp(attrs, in, s)
	op.Func, op.Attribution = at.next.Func, at.next.Attribution
	at.before[at.next] = append(at.before[at.next], op)
	return op.Outputs[0]
}

// of computes an elementwise op. Operands are values, of which the largest has the shape of the result, and float32 numbers.
func (at place) of(attrs ir.Attrs, operands ...any) *ir.Value {
	in := make([]*ir.Value, len(operands))
	var largest *ir.Value
	for i, x := range operands {
		switch x := x.(type) {
		case *ir.Value:
			in[i] = x
			if largest == nil || x.Shape.Size() > largest.Shape.Size() {
				largest = x
			}
		case float64:
			s := shapes.Make(dtypes.Float32)
			in[i] = at.put(&ir.Constant{Value: ir.Literal{Shape: s, Flat: []float32{float32(x)}}}, s)
		}
	}
	return at.put(attrs, largest.Shape, in...)
}

func (at place) add(x, y any) *ir.Value { return at.of(&ir.Add{}, x, y) }
func (at place) sub(x, y any) *ir.Value { return at.of(&ir.Sub{}, x, y) }
func (at place) mul(x, y any) *ir.Value { return at.of(&ir.Mul{}, x, y) }

// mean is that over axes, which stay, with size 1.
func (at place) mean(x *ir.Value, axes []int) *ir.Value {
	var rest []int
	kept := slices.Clone(x.Shape.Dimensions)
	for i, n := range x.Shape.Dimensions {
		if slices.Contains(axes, i) {
			kept[i] = 1
		} else {
			rest = append(rest, n)
		}
	}
	sum := at.put(&ir.ReduceSum{Axes: axes}, shapes.Make(x.Shape.DType, rest...), x)
	s := shapes.Make(x.Shape.DType, kept...)
	return at.put(&ir.Reshape{Dimensions: kept}, s, at.mul(sum, float64(s.Size())/float64(x.Shape.Size())))
}

// again computes a value of forward again for backward. What is small is read as it is: numbers for each feature, or row. Arithmetic with
// what is small is done again, and what it starts from is read behind a barrier.
func (at place) again(v *ir.Value) *ir.Value {
	switch v.Op.Attrs.(type) {
	case *ir.Add, *ir.Sub, *ir.Mul:
		for i, in := range v.Op.Inputs {
			if other := v.Op.Inputs[1-i]; in.Shape.Equal(v.Shape) && isSmall(other, v) {
				in, other = at.again(in), at.repeated(other)
				if i == 1 {
					in, other = other, in
				}
				return at.put(v.Op.Attrs, v.Shape, in, other)
			}
		}
	}
	return at.put(&ir.OptimizationBarrier{}, v.Shape, v)
}

// repeated is a small value as backward reads it: what forward repeats, backward repeats by itself.
func (at place) repeated(v *ir.Value) *ir.Value {
	if b, ok := v.Op.Attrs.(*ir.BroadcastInDim); ok {
		return at.put(b, v.Shape, v.Op.Inputs[0])
	}
	return v
}

// exact is a value from which on all is float32: a cast to what it is already.
func (at place) exact(v *ir.Value) *ir.Value {
	return at.put(&ir.ConvertDType{DType: v.Shape.DType}, v.Shape, v)
}

// isSmall tells whether a value, or what it repeats, has far fewer elements than another.
func isSmall(v, than *ir.Value) bool {
	if _, ok := v.Op.Attrs.(*ir.BroadcastInDim); ok {
		v = v.Op.Inputs[0]
	}
	return v.Shape.Size() <= than.Shape.Size()/64
}

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

// What GoMLX and its autodiff make of a layer norm, y = (x − μ)/σ. g is the gradient of y, and that of x is the sum of normGo and normEnd.
var (
	normX       = anything()
	normMu      = meanOf(normX)
	normCentred = of(ir.OpSub, normX, normMu)
	normSigma   = of(ir.OpSqrt, of(ir.OpAdd, meanOf(of(ir.OpMul, normCentred, normCentred)), anything()))

	normG       = anything()
	normDSigma  = sumOf(of(ir.OpNeg, of(ir.OpMul, normG, of(ir.OpDiv, normCentred, of(ir.OpMul, normSigma, normSigma)))))
	normDSquare = of(ir.OpMul, of(ir.OpMul, of(ir.OpMul, normDSigma, of(ir.OpMul, of(ir.OpDiv, exactly(1), normSigma), exactly(0.5))), oneOfN), normCentred)
	normGo      = of(ir.OpAdd, of(ir.OpAdd, of(ir.OpDiv, normG, normSigma), normDSquare), normDSquare)
	normRest    = anything() // normGo, or a sum with it
	normEnd     = of(ir.OpAdd, normRest, of(ir.OpMul, of(ir.OpNeg, sumOf(normGo)), oneOfN))
)

// layerNorm rewrites the gradient of a layer norm. GoMLX's autodiff goes through each op, which takes two sums over rows, one after the
// other, and keeps x − μ and y. That is the same as (g − mean(g) − y·mean(g·y))/σ, where both means can be taken at once, and y is
// computed again from x.
func layerNorm(p *ir.Program, o Options) (int, error) {
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		if op.Type() == ir.OpAdd && op.Phase == ir.Backward && is32(op.Outputs[0]) {
			if m := normEnd.find(op.Outputs[0], nil, nil); m != nil {
				r.layerNorm(m)
			}
		}
	}
	if r.found > 0 {
		o.note("gradients of " + counted(r.found, "layer norm") + " by one formula; backward normalises again")
	}
	return r.finish(), nil
}

// layerNorm rewrites the gradient of one norm.
func (r *rewriter) layerNorm(m *match) {
	x, mu, centred, sigma, g, end := m.value[normX], m.value[normMu], m.value[normCentred], m.value[normSigma], m.value[normG], m.value[normGo]
	ofCentred, ok := r.backward(centred)
	if !ok || x.Op.Phase != ir.Forward {
		return
	}
	var y *ir.Value
	for _, user := range r.index.Users(centred) {
		if user.Phase == ir.Forward && user.Type() == ir.OpDiv && user.Inputs[0] == centred {
			y = user.Outputs[0]
		}
	}
	if y == nil {
		return
	}
	readers, ok := r.backward(y)
	if !ok {
		return
	}
	r.found++
	dims := slices.Clone(x.Shape.Dimensions)
	for _, axis := range m.axes {
		dims[axis] = 1
	}
	at := place{r, r.first(slices.Concat(readers, ofCentred)...)}
	column := func(v *ir.Value) *ir.Value {
		if slices.Equal(v.Shape.Dimensions, dims) {
			return v
		}
		return at.put(&ir.Reshape{Dimensions: dims}, shapes.Make(v.Shape.DType, dims...), v)
	}
	inverse := at.of(&ir.Div{}, 1., column(sigma))
	again := at.mul(at.sub(at.exact(at.again(x)), column(mu)), inverse)
	read(readers, y, again)
	at = place{r, end.Op}
	// The division by σ comes before the factor of the norm's gain: so that is float32, and all that follows.
	if g.Op.Type() == ir.OpMul && isSmall(g.Op.Inputs[1], g) && g.Op.Inputs[0].Shape.Equal(g.Shape) {
		g = at.mul(at.mul(g.Op.Inputs[0], inverse), g.Op.Inputs[1])
	} else {
		g = at.mul(g, inverse)
	}
	r.by[end] = at.sub(at.sub(g, at.mean(g, m.axes)), at.mul(again, at.mean(at.mul(g, again), m.axes)))
	r.by[m.full] = m.value[normRest]
}

// softmax lets backward compute the exponentials of a softmax again, from what they are of; and reads the logarithms of probabilities of labels, where
// GoMLX sums up what a mask selects of all.
func softmax(p *ir.Program, o Options) (int, error) {
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		switch _, sums := op.Attrs.(*ir.ReduceSum); {
		case op.Phase == ir.Apply || !is32(op.Outputs[0]):
		case op.Phase == ir.Backward && sums:
			r.ofMask(op)
		case op.Phase == ir.Backward:
		case op.Type() == ir.OpExp:
			r.exponentials(op)
		case sums && !o.splits(): // the class of a label may be on another device
			if m := selected.find(op.Inputs[0], op.Attrs.(*ir.ReduceSum).Axes, nil); m != nil {
				r.selected(op, m)
			}
		}
	}
	if r.found > 0 {
		o.note(counted(r.found, "sum") + " of exponentials, or of what masks select: backward computes exponentials again, and labels select")
	}
	return r.finish(), nil
}

// exponentials computes exponentials of a difference again.
func (r *rewriter) exponentials(op *ir.Op) {
	exp, difference := op.Outputs[0], op.Inputs[0]
	readers, ok := r.backward(exp)
	if !ok || len(readers) == 0 || difference.Op.Type() != ir.OpSub {
		return
	}
	x, most := difference.Op.Inputs[0], difference.Op.Inputs[1]
	if !x.Shape.Equal(exp.Shape) || !isSmall(most, exp) {
		return
	}
	r.found++
	at := place{r, r.first(readers...)}
	read(readers, exp, at.of(&ir.Exp{}, at.sub(at.exact(at.again(x)), at.repeated(most))))
}

// What GoMLX makes of the logarithm of the probability of a label: minus what a mask selects of x − log Σ exp x.
var (
	selectedX    = anything()
	selectedMask = of(ir.OpConvertDType, anything())
	selectedLog  = of(ir.OpLog, anything())
	selected     = of(ir.OpNeg, of(ir.OpMul, selectedMask, of(ir.OpSub, selectedX, selectedLog)))
)

// labels is a mask that is 1 where a class is that of a label.
type labels struct {
	of   *ir.Value // the labels, with one class
	axis int       // that of classes
	size int       // how many classes there are
}

// labelsOf finds the labels of a mask; nil: it is another.
func labelsOf(mask *ir.Value) *labels {
	if mask.Op.Type() != ir.OpConvertDType || mask.Op.Inputs[0].Op.Type() != ir.OpEqual {
		return nil
	}
	for i, v := range mask.Op.Inputs[0].Op.Inputs {
		a, ok := v.Op.Attrs.(*ir.Iota)
		of := mask.Op.Inputs[0].Op.Inputs[1-i]
		if !ok || a.IotaAxis != mask.Shape.Rank()-1 || v.Shape.Rank() != mask.Shape.Rank() || of.Shape.Rank() != mask.Shape.Rank() {
			continue
		}
		l := &labels{of, a.IotaAxis, mask.Shape.Dimensions[a.IotaAxis]}
		if want := append(slices.Clone(mask.Shape.Dimensions[:l.axis]), 1); slices.Equal(of.Shape.Dimensions, want) && v.Shape.Dimensions[l.axis] == l.size {
			return l
		}
	}
	return nil
}

// rows is the shape of one number for each label.
func (l *labels) rows(d dtypes.DType) shapes.Shape {
	return shapes.Make(d, l.of.Shape.Dimensions[:l.axis]...)
}

// inside is 1 where a label is one of the classes.
func (l *labels) inside(at place) *ir.Value {
	d := l.of.Shape.DType
	of := at.put(&ir.Reshape{Dimensions: l.rows(d).Dimensions}, l.rows(d), l.of)
	from := at.put(&ir.GreaterOrEqual{}, l.rows(dtypes.Bool), of, at.number(d, 0))
	to := at.put(&ir.LessThan{}, l.rows(dtypes.Bool), of, at.number(d, float64(l.size)))
	both := at.put(&ir.LogicalAnd{}, l.rows(dtypes.Bool), from, to)
	return at.put(&ir.ConvertDType{DType: dtypes.Float32}, l.rows(dtypes.Float32), both)
}

// pick gives the element of each label, of a value with a number for each class: nil if it is none. It goes back to what is in memory.
func (l *labels) pick(at place, v *ir.Value) *ir.Value {
	rows := l.rows(v.Shape.DType)
	switch v.Op.Attrs.(type) {
	case *ir.Add, *ir.Sub, *ir.Mul:
		if x, y := l.pick(at, v.Op.Inputs[0]), l.pick(at, v.Op.Inputs[1]); x != nil && y != nil {
			return at.put(v.Op.Attrs, rows, x, y)
		}
		return nil
	case *ir.BroadcastInDim:
		if in := v.Op.Inputs[0]; in.Shape.Rank() == 1 && in.Shape.Size() == l.size {
			return l.gather(at, in)
		}
	}
	switch dims := v.Shape.Dimensions; {
	case len(dims) == 0:
		return v
	case len(dims) != l.axis+1:
		return nil
	case dims[l.axis] == 1 && v.Shape.Size() == rows.Size():
		return at.put(&ir.Reshape{Dimensions: rows.Dimensions}, rows, v)
	case dims[l.axis] == l.size && v.Shape.Size() == l.size:
		return l.gather(at, at.put(&ir.Reshape{Dimensions: []int{l.size}}, shapes.Make(v.Shape.DType, l.size), v))
	case slices.Equal(dims[:l.axis], rows.Dimensions) && dims[l.axis] == l.size:
		return l.gather(at, v)
	}
	return nil
}

// gather reads the elements of labels: of a vector, or of a value with one for each.
func (l *labels) gather(at place, v *ir.Value) *ir.Value {
	var parts []*ir.Value
	for axis := range v.Shape.Rank() - 1 {
		parts = append(parts, at.put(&ir.Iota{Shape: l.of.Shape, IotaAxis: axis}, l.of.Shape))
	}
	indices := l.of
	if parts != nil {
		s := l.of.Shape.Clone()
		s.Dimensions[l.axis] = v.Shape.Rank()
		indices = at.put(&ir.Concatenate{Axis: l.axis}, s, append(parts, l.of)...)
	}
	all := upTo(v.Shape.Rank())
	return at.put(&ir.Gather{IndexVectorAxis: l.axis, OffsetOutputAxes: []int{}, CollapsedSliceAxes: all, StartIndexMap: all,
		SliceSizes: slices.Repeat([]int{1}, len(all))}, l.rows(v.Shape.DType), v, indices)
}

// selected reads the elements of labels, instead of a sum over all classes.
func (r *rewriter) selected(op *ir.Op, m *match) {
	x, log, sum := m.value[selectedX], m.value[selectedLog], op.Outputs[0]
	l := labelsOf(m.value[selectedMask])
	if l == nil || !slices.Equal(op.Attrs.(*ir.ReduceSum).Axes, []int{l.axis}) || log.Shape.Size() != sum.Shape.Size() || !x.Shape.Equal(m.full.Shape) {
		return
	}
	at := place{r, op}
	chosen := l.pick(at, x)
	if chosen == nil {
		return
	}
	r.found++
	log = at.put(&ir.Reshape{Dimensions: sum.Shape.Dimensions}, sum.Shape, log)
	r.by[sum] = at.mul(l.inside(at), at.sub(log, chosen))
}

// ofMask takes what is the same for all classes out of a sum over a mask, of which one element is 1.
func (r *rewriter) ofMask(op *ir.Op) {
	if op.Inputs[0].Op.Type() != ir.OpMul {
		return
	}
	for i, mask := range op.Inputs[0].Op.Inputs {
		l := labelsOf(mask)
		if l == nil || !slices.Equal(op.Attrs.(*ir.ReduceSum).Axes, []int{l.axis}) {
			continue
		}
		negative, v := false, op.Inputs[0].Op.Inputs[1-i]
		for ; v.Op.Type() == ir.OpNeg; v = v.Op.Inputs[0] {
			negative = !negative
		}
		b, ok := v.Op.Attrs.(*ir.BroadcastInDim)
		if !ok || !slices.Equal(v.Op.Inputs[0].Shape.Dimensions, l.of.Shape.Dimensions) || !slices.Equal(b.BroadcastAxes, upTo(l.axis+1)) {
			continue
		}
		r.found++
		at, rows := place{r, op}, l.rows(dtypes.Float32)
		v = at.put(&ir.Reshape{Dimensions: rows.Dimensions}, rows, v.Op.Inputs[0])
		if negative {
			v = at.put(&ir.Neg{}, rows, v)
		}
		r.by[op.Outputs[0]] = at.mul(v, l.inside(at))
		return
	}
}

// The variance as GoMLX writes it: the mean of (x − μ)².
var (
	varianceX       = anything()
	varianceMu      = meanOf(varianceX)
	varianceCentred = of(ir.OpSub, varianceX, varianceMu)
	varianceSquare  = of(ir.OpMul, varianceCentred, varianceCentred)
)

// variance takes the sum of (x − μ)² as Σx² − μ·Σx, so that x is read once for it and for μ. That loses digits where μ is far from 0, beside the
// deviation: but fewer than x has lost where it was rounded to bfloat16, and only there it is done.
func variance(p *ir.Program, o Options) (int, error) {
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		a, ok := op.Attrs.(*ir.ReduceSum)
		if !ok || op.Phase == ir.Apply || !is32(op.Outputs[0]) || len(a.Axes) == 0 {
			continue
		}
		m := varianceSquare.find(op.Inputs[0], a.Axes, nil)
		if m == nil {
			continue
		}
		x, mu, sum := m.value[varianceX], m.value[varianceMu], op.Outputs[0]
		if x.Op.Type() != ir.OpConvertDType || x.Op.Inputs[0].Shape.DType != dtypes.BFloat16 || !mu.Shape.Equal(sum.Shape) {
			continue
		}
		r.found++
		at := place{r, op}
		squares, total := at.put(a, sum.Shape, at.mul(x, x)), at.put(a, sum.Shape, x)
		r.by[sum] = at.of(&ir.Max{}, at.sub(squares, at.mul(total, mu)), 0.)
	}
	if r.found > 0 {
		o.note(counted(r.found, "variance") + " of bfloat16 by sums of squares")
	}
	return r.finish(), nil
}

// sums lets sums of backward, such as gradients of biases, read values before they are rounded: so XLA can take the sum where it computes them,
// which the barrier behind the rounding prevents.
func sums(p *ir.Program, o Options) (int, error) {
	n := 0
	for _, op := range p.Main.Ops {
		if op.Type() != ir.OpReduceSum || op.Phase != ir.Backward {
			continue
		}
		v := op.Inputs[0]
		for _, t := range []ir.OpType{ir.OpConvertDType, ir.OpOptimizationBarrier, ir.OpConvertDType} {
			if v != nil && v.Op.Type() == t && len(v.Op.Inputs) == 1 {
				v = v.Op.Inputs[0]
			} else {
				v = nil
			}
		}
		if is32(v) && is32(op.Inputs[0]) && v.Op.Phase == ir.Backward {
			op.Inputs[0] = v
			n++
		}
	}
	if n > 0 {
		analysis.Sweep(p)
	}
	return n, nil
}

// concat puts side by side what was padded with zeros and added up, as the gradients of parts of a value are.
func concat(p *ir.Program, o Options) (int, error) {
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		if op.Type() != ir.OpAdd {
			continue
		}
		parts, axis := r.parts(op.Outputs[0])
		if parts == nil {
			continue
		}
		r.found++
		r.by[op.Outputs[0]] = place{r, op}.put(&ir.Concatenate{Axis: axis}, op.Outputs[0].Shape, parts...)
	}
	return r.finish(), nil
}

// parts are what a sum consists of, in order, and the axis along which they stand side by side; nil if it is something else. A sum that is a part of another is not
// looked at by itself.
func (r *rewriter) parts(sum *ir.Value) (parts []*ir.Value, axis int) {
	if users := r.index.Users(sum); len(users) == 1 && users[0].Type() == ir.OpAdd {
		return nil, 0
	}
	type part struct {
		v          *ir.Value
		start, end int
	}
	var all []part
	axis = -1
	var collect func(v *ir.Value) bool
	collect = func(v *ir.Value) bool {
		switch a := v.Op.Attrs.(type) {
		case *ir.Add:
			return (v == sum || r.only(v) != nil) && collect(v.Op.Inputs[0]) && collect(v.Op.Inputs[1])
		case *ir.Pad:
			at := -1
			for i, c := range a.AxesConfig {
				if c.Interior != 0 || c.Start < 0 || c.End < 0 || (c.Start > 0 || c.End > 0) && at >= 0 {
					return false
				}
				if c.Start > 0 || c.End > 0 {
					at = i
				}
			}
			if at < 0 || axis >= 0 && at != axis || !isZeros(v.Op.Inputs[1]) {
				return false
			}
			axis = at
			all = append(all, part{v.Op.Inputs[0], a.AxesConfig[at].Start, v.Shape.Dimensions[at] - a.AxesConfig[at].End})
			return true
		}
		return false
	}
	if !collect(sum) || len(all) < 2 {
		return nil, 0
	}
	slices.SortFunc(all, func(a, b part) int { return a.start - b.start })
	end := 0
	for _, x := range all {
		if x.start != end {
			return nil, 0
		}
		end = x.end
		parts = append(parts, x.v)
	}
	if end != sum.Shape.Dimensions[axis] {
		return nil, 0
	}
	return parts, axis
}

// split multiplies the parts of weights whose products are used apart, as queries, keys and values are: no part is copied out of a whole.
func split(p *ir.Program, o Options) (int, error) {
	if o.splits() {
		return 0, nil // parts of a dim that is divided are on other devices
	}
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		if op.Type() == ir.OpDotGeneral && op.Phase == ir.Forward {
			r.split(op)
		}
	}
	return r.finish(), nil
}

// split replaces one product, and the sum with a bias, if there is one.
func (r *rewriter) split(op *ir.Op) {
	dot, out := op.Attrs.(*ir.DotGeneral), op.Outputs[0]
	weights, last := op.Inputs[1], out.Shape.Rank()-1
	free := slices.IndexFunc(upTo(weights.Shape.Rank()), func(axis int) bool { return !slices.Contains(dot.RHSContractingAxes, axis) })
	if len(dot.RHSBatchAxes) > 0 || weights.Shape.Rank() != len(dot.RHSContractingAxes)+1 || free < 0 {
		return
	}
	whole, bias := out, (*ir.Value)(nil)
	if next := r.only(out); next != nil && next.Type() == ir.OpAdd {
		for i, in := range next.Inputs {
			b, ok := in.Op.Attrs.(*ir.BroadcastInDim)
			if ok && next.Inputs[1-i] == out && in.Op.Inputs[0].Shape.Rank() == 1 && slices.Equal(b.BroadcastAxes, []int{last}) {
				whole, bias = next.Outputs[0], in.Op.Inputs[0]
			}
		}
	}
	users := r.index.Users(whole)
	for _, user := range users {
		s, ok := user.Attrs.(*ir.Slice)
		if !ok || !slices.Equal(s.Starts[:last], make([]int, last)) || !slices.Equal(s.Limits[:last], out.Shape.Dimensions[:last]) ||
			slices.ContainsFunc(s.Strides, func(n int) bool { return n != 1 }) {
			return
		}
	}
	if len(users) < 2 || slices.Contains(r.p.Main.Outputs, whole) {
		return
	}
	r.found++
	for _, user := range users {
		s, at, part := user.Attrs.(*ir.Slice), place{r, user}, user.Outputs[0].Shape
		cut := func(v *ir.Value, axis int) *ir.Value {
			a := &ir.Slice{Starts: make([]int, v.Shape.Rank()), Limits: slices.Clone(v.Shape.Dimensions), Strides: slices.Repeat([]int{1}, v.Shape.Rank())}
			a.Starts[axis], a.Limits[axis] = s.Starts[last], s.Limits[last]
			shape := v.Shape.Clone()
			shape.Dimensions[axis] = part.Dimensions[last]
			return at.put(a, shape, v)
		}
		product := at.put(dot, part, op.Inputs[0], cut(weights, free))
		if bias != nil {
			product = at.put(&ir.Add{}, part, product, at.put(&ir.BroadcastInDim{OutputShape: part, BroadcastAxes: []int{last}}, part, cut(bias, 0)))
		}
		r.by[user.Outputs[0]] = product
	}
}
