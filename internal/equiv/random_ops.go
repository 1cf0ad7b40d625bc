package equiv

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/nn"
)

// family is a kind of ops that random programs are made of. It draws operands from the pool and adds results to it.
type family struct {
	weight int // how often, relative to the others
	apply  func(*pool)
}

var families = []family{
	{8, (*pool).unary}, {2, (*pool).jump}, {6, (*pool).binary}, {6, (*pool).broadcast},
	{10, (*pool).dot}, {4, (*pool).einsum}, {4, (*pool).matmul},
	{8, (*pool).transpose}, {8, (*pool).reduce}, {4, (*pool).sum}, {6, (*pool).siblings},
	{5, (*pool).reshape}, {4, (*pool).slice}, {3, (*pool).concatenate}, {2, (*pool).pad}, {2, (*pool).reverse},
	{4, (*pool).gather}, {3, (*pool).scatter},
	{4, (*pool).softmax}, {4, (*pool).layerNorm}, {3, (*pool).gelu}, {6, (*pool).dense},
	{4, (*pool).where}, {2, (*pool).logic}, {4, (*pool).convert}, {3, (*pool).integer},
	{2, (*pool).counting}, {2, (*pool).cumSum}, {2, (*pool).sort}, {2, (*pool).while}, {3, (*pool).branch}, {2, (*pool).random},
}

func (p *pool) unary() {
	v, ok := p.pick(isFloat)
	if !ok {
		return
	}
	v = p.tame(v)
	b := v.bound
	type op struct {
		name  string
		bound float64
		f     func(*Node) *Node
	}
	ops := []op{
		{"tanh", 1, Tanh}, {"neg", b, Neg}, {"sin", 1, Sin}, {"cos", 1, Cos}, {"logistic", 1, Logistic},
		{"square", b * b, Square}, {"erf", 1, Erf}, {"abs", b, func(x *Node) *Node { return kink(Abs(x), v) }},
		{"exp", math.Exp(min(b, 2)), func(x *Node) *Node { return Exp(ClipScalar(x, -4, 2)) }},
		{"log1p(abs)", b, func(x *Node) *Node { return Log1P(kink(Abs(x), v)) }},
		{"sqrt(1+x²)", b + 1, func(x *Node) *Node { return Sqrt(OnePlus(Square(x))) }},
		{"1/(1+x²)", 1, func(x *Node) *Node { return Reciprocal(OnePlus(Square(x))) }},
		{"rsqrt(1+x²)", 1, func(x *Node) *Node { return StopGradient(Rsqrt(OnePlus(Square(x)))) }},
	}
	n := len(ops)
	if v.Shape().Size() == 0 {
		n = 7 // the others have constants in them: see hasData
	}
	o := ops[p.IntN(n)]
	p.put(o.name, o.bound, o.f(v.Node), v)
}

// kink stops gradients that jump where from changes by a rounding error.
func kink(n *Node, from ...value) *Node {
	if slices.ContainsFunc(from, func(v value) bool { return !v.exact }) {
		return StopGradient(n)
	}
	return n
}

// jump applies what is not continuous.
func (p *pool) jump() {
	v, ok := p.pick(hasData(isExact(isFloat)))
	if !ok || v.bound > 100 {
		return
	}
	switch p.IntN(4) {
	case 0:
		p.put("sign", 1, StopGradient(Sign(v.Node)), v)
	case 1:
		p.put("floor(3x)", 3*v.bound+1, StopGradient(Floor(MulScalar(v.Node, 3))), v)
	case 2:
		p.put("round(5x)", 5*v.bound+1, StopGradient(Round(MulScalar(v.Node, 5))), v)
	case 3:
		if v.Rank() > 0 {
			axis := p.IntN(v.Rank())
			p.put(fmt.Sprintf("argmax %d", axis), float64(v.Shape().Dimensions[axis]), StopGradient(ArgMax(v.Node, axis)), v)
		}
	}
}

// combine is a binary op on operands whose shapes broadcast.
func (p *pool) combine(a, b value) value {
	x, y := a.Node, b.Node
	kinds := 6
	if x.Shape().Size() == 0 {
		kinds = 5 // see hasData
	}
	switch p.IntN(kinds) {
	case 0:
		return p.put("add", a.bound+b.bound, Add(x, y), a, b)
	case 1:
		return p.put("sub", a.bound+b.bound, Sub(x, y), a, b)
	case 2:
		return p.put("mul", a.bound*b.bound, Mul(x, y), a, b)
	case 3:
		return p.put("max", max(a.bound, b.bound), kink(Max(x, y), a, b), a, b)
	case 4:
		return p.put("min", max(a.bound, b.bound), kink(Min(x, y), a, b), a, b)
	default:
		return p.put("x/(1+|y|)", a.bound, Div(x, OnePlus(kink(Abs(y), b))), a, b)
	}
}

func (p *pool) binary() {
	a, ok := p.pick(isFloat)
	if !ok {
		return
	}
	a = p.tame(a)
	p.combine(a, p.shaped(a.DType(), a.Shape().Dimensions...))
}

// broadcast combines operands of different shapes, in the ways that GoMLX has.
func (p *pool) broadcast() {
	a, ok := p.pick(hasData(isFloatAxes))
	if !ok {
		return
	}
	a = p.tame(a)
	dims := slices.Clone(a.Shape().Dimensions)
	axis := p.IntN(len(dims))
	switch p.IntN(5) {
	case 0: // an axis of size one stretches
		dims[axis] = 1
		p.combine(a, p.shaped(a.DType(), dims...))
	case 1: // a scalar
		p.combine(p.shaped(a.DType()), a)
	case 2: // a vector over the other axes
		v := p.shaped(a.DType(), dims[axis])
		shape := slices.Repeat([]int{1}, len(dims))
		shape[axis] = dims[axis]
		p.combine(a, p.put("expand", v.bound, Reshape(v.Node, shape...), v))
	case 3: // both stretch
		if other := max(1, p.size.dim(p.Rand)); len(dims) < 4 && a.Shape().Size()*other <= maxSize {
			b := p.shaped(a.DType(), append([]int{other}, slices.Repeat([]int{1}, len(dims))...)...)
			p.combine(p.put("insert axis", a.bound, InsertAxes(a.Node, 0), a), b)
		}
	case 4:
		if n := p.size.dim(p.Rand); len(dims) < 4 && a.Shape().Size()*n <= maxSize {
			p.put(fmt.Sprintf("broadcast prefix %d", n), a.bound, BroadcastPrefix(a.Node, n), a)
		}
	}
}

// contraction is how the axes of two operands of a dot meet.
type contraction struct {
	a, b                   value
	aContract, aBatch      []int
	bContract, bBatch      []int
	left, right, contracts int // cross axes of a and of b; products summed up per element
}

// contraction draws an operand, and makes another to fit.
func (p *pool) contraction() (c contraction, ok bool) {
	if c.a, ok = p.pick(hasData(isFloatAxes)); !ok {
		return c, false
	}
	c.a = p.tame(c.a)
	dims := c.a.Shape().Dimensions
	axes := p.Perm(len(dims))
	batch := p.IntN(min(len(axes), 3))
	contract := 1 + p.IntN(len(axes)-batch)
	c.aBatch, c.aContract = axes[:batch], axes[batch:batch+contract]
	c.left, c.right = len(axes)-batch-contract, p.IntN(3)
	type axis struct{ size, like int }
	var other []axis
	outSize := 1
	c.contracts = 1
	for i, d := range dims {
		switch {
		case slices.Contains(c.aContract, i):
			other = append(other, axis{d, i})
			c.contracts *= d
		case slices.Contains(c.aBatch, i):
			other = append(other, axis{d, i})
			outSize *= d
		default:
			outSize *= d
		}
	}
	for range c.right {
		d := max(1, p.size.dim(p.Rand)) // the pure-Go backend fails on empty dots
		other = append(other, axis{d, -1})
		outSize *= d
	}
	p.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	if p.r.differentiate { // GoMLX finds gradients only where contracted axes come in the same order on both sides
		slices.Sort(c.aContract)
		next := 0
		for i, x := range other {
			if slices.Contains(c.aContract, x.like) {
				other[i] = axis{dims[c.aContract[next]], c.aContract[next]}
				next++
			}
		}
	}
	sizes := make([]int, len(other))
	at := map[int]int{}
	total := 1
	for i, x := range other {
		sizes[i] = x.size
		total *= x.size
		if x.like >= 0 {
			at[x.like] = i
		}
	}
	if outSize > maxSize || total > maxSize || outSize*c.contracts > 40*maxSize {
		return c, false
	}
	for _, i := range c.aBatch {
		c.bBatch = append(c.bBatch, at[i])
	}
	for _, i := range c.aContract {
		c.bContract = append(c.bContract, at[i])
	}
	c.b = p.shaped(c.a.DType(), sizes...)
	return c, true
}

func (c contraction) bound() float64 {
	return c.a.bound * c.b.bound * math.Sqrt(float64(max(1, c.contracts)))
}

// putDot adds the result of a dot, brought back to the size of its operands.
func (p *pool) putDot(what string, n *Node, c contraction) {
	n = DivScalar(n, math.Sqrt(float64(max(1, c.contracts))))
	v := p.putRounded(what, c.bound(), n, c.a, c.b)
	if c.a.DType() == dtypes.BFloat16 { // also where the result is float32
		v = p.change(v, func(v *value) { v.coarse = true })
	}
	p.tame(v)
}

// dot is a general one; its result is often transposed, mostly such that its operands could be swapped instead.
func (p *pool) dot() {
	c, ok := p.contraction()
	if !ok {
		return
	}
	what := fmt.Sprintf("dot %v %v with %v %v", c.aContract, c.aBatch, c.bContract, c.bBatch)
	if c.a.DType() == dtypes.Float32 && p.IntN(3) == 0 {
		c.a, c.b = p.half(c.a), p.half(c.b)
	}
	builder := Dot(c.a.Node, c.b.Node)
	if c.a.DType() == dtypes.BFloat16 && p.IntN(2) == 0 {
		what += " to float32"
		builder = builder.WithOutputDType(dtypes.Float32)
	}
	n := builder.General(c.aContract, c.aBatch, c.bContract, c.bBatch)
	batch := len(c.aBatch)
	if n.Rank() > 1 && p.IntN(2) == 0 {
		perm := make([]int, 0, n.Rank())
		for i := range n.Rank() {
			switch {
			case i < batch:
				perm = append(perm, i)
			case i < batch+c.right:
				perm = append(perm, i+c.left)
			default:
				perm = append(perm, i-c.right)
			}
		}
		if p.IntN(4) == 0 {
			perm = p.Perm(n.Rank())
		}
		what += fmt.Sprintf(", transpose %v", perm)
		n = TransposeAllAxes(n, perm...)
	}
	p.putDot(what, n, c)
}

func (p *pool) einsum() {
	c, ok := p.contraction()
	if !ok {
		return
	}
	names := func(rank int, from byte) []byte {
		b := make([]byte, rank)
		for i := range b {
			b[i] = from + byte(i)
		}
		return b
	}
	a, b := names(c.a.Rank(), 'a'), names(c.b.Rank(), 'k')
	out := slices.Clone(a)
	for i, axis := range c.aContract {
		b[c.bContract[i]] = a[axis]
		out = slices.DeleteFunc(out, func(x byte) bool { return x == a[axis] })
	}
	for i, axis := range c.aBatch {
		b[c.bBatch[i]] = a[axis]
	}
	for _, x := range b {
		if x >= 'k' {
			out = append(out, x)
		}
	}
	p.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	equation := fmt.Sprintf("%s,%s->%s", a, b, out)
	p.putDot("einsum "+equation, Einsum(equation, c.a.Node, c.b.Node), c)
}

func (p *pool) matmul() {
	a, ok := p.pick(hasData(isFloatMatrix))
	if !ok {
		return
	}
	a = p.tame(a)
	dims := a.Shape().Dimensions
	k, n := dims[len(dims)-1], max(1, p.size.dim(p.Rand))
	if a.Shape().Size()*n > maxSize {
		return
	}
	c := contraction{a: a, b: p.shaped(a.DType(), k, n), contracts: k}
	if len(dims) > 2 { // GoMLX multiplies each matrix of a stack
		stack := append(slices.Clone(dims[:len(dims)-2]), k, n)
		c.b = p.shaped(a.DType(), stack...)
	}
	p.putDot("matmul", MatMul(a.Node, c.b.Node), c)
}

func (p *pool) transpose() {
	v, ok := p.pick(func(v value) bool { return v.Rank() > 1 })
	if !ok {
		return
	}
	perm := p.Perm(v.Rank())
	if p.IntN(4) == 0 {
		slices.Sort(perm) // the identity
	}
	v = p.put(fmt.Sprintf("transpose %v", perm), v.bound, TransposeAllAxes(v.Node, perm...), v)
	if p.IntN(2) == 0 {
		return
	}
	again := p.Perm(v.Rank())
	if p.IntN(2) == 0 { // back to where it was
		for i, axis := range perm {
			again[axis] = i
		}
	}
	p.put(fmt.Sprintf("transpose %v", again), v.bound, TransposeAllAxes(v.Node, again...), v)
}

// someAxes draws some axes, at least one: often the first or the last ones.
func (p *pool) someAxes(v value) []int {
	n := 1 + p.IntN(v.Rank())
	switch p.IntN(3) {
	case 0:
		return consecutive(0, n)
	case 1:
		return consecutive(v.Rank()-n, n)
	}
	axes := p.Perm(v.Rank())[:n]
	slices.Sort(axes)
	return axes
}

func consecutive(from, n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = from + i
	}
	return r
}

func elements(v value, axes []int) int {
	n := 1
	for _, a := range axes {
		n *= v.Shape().Dimensions[a]
	}
	return n
}

func (p *pool) reduce() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok {
		return
	}
	v = p.tame(v)
	axes := p.someAxes(v)
	type op struct {
		name    string
		rounded bool
		f       func(*Node, ...int) *Node
	}
	ops := []op{
		{"sum", true, scaledSum}, {"mean", true, ReduceMean},
		{"max", false, func(x *Node, axes ...int) *Node { return kink(ReduceMax(x, axes...), v) }},
		{"min", false, func(x *Node, axes ...int) *Node { return kink(ReduceMin(x, axes...), v) }},
		{"product of tanh", true, func(x *Node, axes ...int) *Node { return StopGradient(ReduceMultiply(Tanh(x), axes...)) }},
	}
	o := ops[p.IntN(len(ops))]
	put := p.put
	if o.rounded {
		put = p.putRounded
	}
	bound := max(v.bound, 1) * math.Sqrt(float64(elements(v, axes)))
	if p.IntN(3) == 0 {
		put(fmt.Sprintf("%s and keep %v", o.name, axes), bound, ReduceAndKeep(v.Node, o.f, axes...), v)
		return
	}
	put(fmt.Sprintf("%s %v", o.name, axes), bound, o.f(v.Node, axes...), v)
}

// scaledSum is a sum divided by the square root of the number of terms.
func scaledSum(x *Node, axes ...int) *Node {
	n := 1
	for _, a := range axes {
		n *= x.Shape().Dimensions[a]
	}
	return DivScalar(ReduceSum(x, axes...), math.Sqrt(float64(max(1, n))))
}

// sum adds up something with many elements over its first or last axes.
func (p *pool) sum() {
	rows, cols := 8+p.IntN(9), 8+p.IntN(9)
	split := 1 + p.IntN(3)
	dims := []int{rows * split, cols}
	if p.IntN(2) == 0 {
		dims = []int{rows, split, cols}
	}
	v := p.shaped(dtypes.Float32, dims...)
	axes := p.someAxes(v)
	p.putRounded(fmt.Sprintf("sum %v", axes), v.bound*math.Sqrt(float64(elements(v, axes))), scaledSum(v.Node, axes...), v)
}

// siblings applies an op twice to the same operand, once with other attributes: only one of each is needed, but both.
func (p *pool) siblings() {
	d := p.size.favourite
	v := p.shaped(dtypes.Float32, d, d, d)
	if d > 9 {
		v = p.shaped(dtypes.Float32, d, d)
	}
	r := v.Rank()
	i, j := p.IntN(r), p.IntN(r)
	type op struct {
		name    string
		rounded bool
		f       func(x *Node, axis int) *Node
	}
	ops := []op{
		{"sum", true, func(x *Node, axis int) *Node { return scaledSum(x, axis) }},
		{"max", false, func(x *Node, axis int) *Node { return kink(ReduceMax(x, axis), v) }},
		{"softmax", true, func(x *Node, axis int) *Node { return Softmax(x, axis) }},
		{"slice", false, func(x *Node, axis int) *Node { return SliceAxis(x, 0, AxisElem(axis)) }},
		{"reverse", false, func(x *Node, axis int) *Node { return StopGradient(Reverse(x, axis)) }},
		{"transpose", false, func(x *Node, axis int) *Node { return Transpose(x, axis, r-1) }},
		{"iota", false, func(x *Node, axis int) *Node { return Mul(x, DivScalar(Iota(x.Graph(), x.Shape(), axis), d)) }},
		{"dot", true, func(x *Node, axis int) *Node {
			return DivScalar(DotGeneral(x, []int{axis}, nil, x, []int{axis}, nil), float64(d))
		}},
		{"tanh", false, func(x *Node, _ int) *Node { return Tanh(x) }},
		{"broadcast", false, func(x *Node, axis int) *Node {
			row := kink(ReduceMax(x, consecutive(0, r-1)...), v)
			shape := slices.Repeat([]int{1}, r)
			shape[axis] = d
			return Mul(x, Reshape(row, shape...))
		}},
		{"cumulative sum", true, func(x *Node, axis int) *Node { return StopGradient(DivScalar(CumSum(x, axis), d)) }},
	}
	o := ops[p.IntN(len(ops))]
	if o.name == "dot" && r == 3 {
		return // too large
	}
	put := p.put
	if o.rounded {
		put = p.putRounded
	}
	bound := max(v.bound, v.bound*v.bound) * math.Sqrt(float64(d))
	a := put(fmt.Sprintf("%s %d", o.name, i), bound, o.f(v.Node, i), v)
	b := put(fmt.Sprintf("%s %d", o.name, j), bound, o.f(v.Node, j), v)
	p.put("x-y/2", 2*bound, Sub(a.Node, MulScalar(b.Node, 0.5)), a, b)
}

func (p *pool) reshape() {
	v, ok := p.pick(func(v value) bool { return v.Rank() > 0 })
	if !ok {
		return
	}
	dims := slices.Clone(v.Shape().Dimensions)
	at := p.IntN(len(dims))
	switch p.IntN(4) {
	case 0: // split an axis
		for _, d := range []int{2, 3} {
			if dims[at] > d && dims[at]%d == 0 && len(dims) < 5 {
				dims = slices.Replace(dims, at, at+1, dims[at]/d, d)
				break
			}
		}
	case 1: // merge two
		if at > 0 {
			dims = slices.Replace(dims, at-1, at+1, dims[at-1]*dims[at])
		}
	case 2: // insert one
		if len(dims) < 5 {
			dims = slices.Insert(dims, at, 1)
		}
	case 3: // drop those of size one
		dims = slices.DeleteFunc(dims, func(d int) bool { return d == 1 })
	}
	p.put("reshape", v.bound, Reshape(v.Node, dims...), v)
}

func (p *pool) slice() {
	v, ok := p.pick(hasData(func(v value) bool { return v.Rank() > 0 }))
	if !ok {
		return
	}
	specs := make([]SliceAxisSpec, v.Rank())
	var what string
	for i, d := range v.Shape().Dimensions {
		from := p.IntN(d)
		to := from + 1 + p.IntN(d-from)
		stride := 1 + p.IntN(2)
		to -= (to - from - 1) % stride // GoMLX's gradient fails where the stride leaves a rest
		if p.IntN(3) == 0 {
			from, to, stride = 0, d, 1
		}
		specs[i] = AxisRange(from, to).Stride(stride)
		what += fmt.Sprintf(" %d:%d:%d", from, to, stride)
	}
	p.put("slice"+what, v.bound, Slice(v.Node, specs...), v)
}

func (p *pool) concatenate() {
	v, ok := p.pick(isFloatAxes)
	if !ok {
		return
	}
	axis := p.IntN(v.Rank())
	dims := slices.Clone(v.Shape().Dimensions)
	dims[axis] = p.size.dim(p.Rand)
	w := p.shaped(v.DType(), dims...)
	if v.Shape().Size()+2*w.Shape().Size() > maxSize {
		return
	}
	p.put(fmt.Sprintf("concatenate %d", axis), max(v.bound, w.bound), Concatenate([]*Node{w.Node, v.Node, w.Node}, axis), w, v, w)
}

func (p *pool) pad() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok || v.Shape().Size()*8 > maxSize {
		return
	}
	config := make([]compute.PadAxis, v.Rank())
	config[p.IntN(len(config))] = compute.PadAxis{Start: p.IntN(3), End: p.IntN(3), Interior: p.IntN(2)}
	p.put(fmt.Sprintf("pad %v", config), v.bound, StopGradient(Pad(v.Node, Scalar(p.g, v.DType(), 0.5), config...)), v)
}

func (p *pool) reverse() {
	v, ok := p.pick(func(v value) bool { return v.Rank() > 0 })
	if !ok {
		return
	}
	axes := p.someAxes(v)
	p.put(fmt.Sprintf("reverse %v", axes), v.bound, StopGradient(Reverse(v.Node, axes...)), v)
}

// indices returns integers from 0 to n-1, as a matrix with one column.
func (p *pool) indices(n int) (value, bool) {
	v, ok := p.pick(hasData(func(v value) bool { return isInt(v) && v.Rank() > 0 && v.Shape().Size() <= 64 && v.bound < 1e6 }))
	if !ok || n == 0 {
		return value{}, false
	}
	size := v.Shape().Size()
	x := Mod(Abs(Reshape(v.Node, size, 1)), Scalar(p.g, dtypes.Int32, n))
	return p.put(fmt.Sprintf("indices below %d", n), float64(n), x, v), true
}

func (p *pool) gather() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok {
		return
	}
	at, ok := p.indices(v.Shape().Dimensions[0])
	if !ok || at.Shape().Size()*v.Shape().Size() > maxSize*v.Shape().Dimensions[0] {
		return
	}
	p.put("gather", v.bound, Gather(v.Node, at.Node), v, at)
}

func (p *pool) scatter() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok {
		return
	}
	v = p.tame(v)
	at, ok := p.indices(v.Shape().Dimensions[0])
	if !ok {
		return
	}
	dims := append([]int{at.Shape().Size()}, v.Shape().Dimensions[1:]...)
	size := 1
	for _, d := range dims {
		size *= d
	}
	if size > maxSize {
		return
	}
	updates := p.shaped(v.DType(), dims...)
	switch p.IntN(2) {
	case 0:
		bound := v.bound + updates.bound*float64(dims[0])
		p.tame(p.putRounded("scatter sum", bound, ScatterSum(v.Node, at.Node, updates.Node, false, false), v, at, updates))
	case 1:
		p.put("scatter max", max(v.bound, updates.bound), kink(ScatterMax(v.Node, at.Node, updates.Node, false, false), v, updates), v, at, updates)
	}
}

func (p *pool) softmax() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok || v.DType() == dtypes.BFloat16 { // for which the pure-Go backend has no fused op
		return
	}
	v = p.tame(v)
	axis := p.IntN(v.Rank())
	if p.IntN(3) == 0 {
		p.putRounded(fmt.Sprintf("log softmax %d", axis), v.bound+3, LogSoftmax(v.Node, axis), v)
		return
	}
	p.putRounded(fmt.Sprintf("softmax %d", axis), 1, Softmax(v.Node, axis), v)
}

func (p *pool) layerNorm() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok || v.DType() == dtypes.BFloat16 {
		return
	}
	v = p.tame(v)
	n := 1 + p.IntN(min(2, v.Rank()))
	axes := consecutive(v.Rank()-n, n)
	var gamma, beta *Node
	from := []value{v}
	parameter := func() *Node {
		if p.IntN(3) == 0 {
			return nil
		}
		w := p.shaped(v.DType(), v.Shape().Dimensions[v.Rank()-n:]...)
		from = append(from, w)
		return w.Node
	}
	if gamma = parameter(); gamma != nil { // without gamma the pure-Go backend's fused op takes beta for it
		beta = parameter()
	}
	// A large epsilon: rounding errors of nearly equal elements must not be blown up.
	p.tame(p.putRounded(fmt.Sprintf("layer norm %v", axes), 10, nn.LayerNorm(v.Node, axes, 0.1, gamma, beta, nil), from...))
}

func (p *pool) gelu() {
	v, ok := p.pick(hasData(isFloat))
	if !ok {
		return
	}
	v = p.tame(v)
	if p.IntN(2) == 0 {
		p.putRounded("gelu", v.bound, activation.Gelu(v.Node), v)
		return
	}
	p.putRounded("gelu approximate", v.bound, activation.GeluApproximate(v.Node), v)
}

func (p *pool) dense() {
	x, ok := p.pick(hasData(isFloatMatrix))
	if !ok || x.DType() == dtypes.BFloat16 {
		return
	}
	x = p.tame(x)
	in, out := x.Shape().Dimensions[x.Rank()-1], max(1, p.size.dim(p.Rand))
	if x.Shape().Size()/in*out > maxSize {
		return
	}
	layout, dims := compute.DenseLayoutInputOutputs, []int{in, out}
	if p.IntN(2) == 0 {
		layout, dims = compute.DenseLayoutOutputsInput, []int{out, in}
	}
	w := p.shaped(x.DType(), dims...)
	from := []value{x, w}
	var bias *Node
	if p.IntN(3) > 0 {
		b := p.shaped(x.DType(), out)
		from, bias = append(from, b), b.Node
	}
	acts := []activation.Type{activation.TypeNone, activation.TypeRelu, activation.TypeGelu, activation.TypeTanh, activation.TypeSwish}
	act := acts[p.IntN(len(acts))]
	if act == activation.TypeRelu && p.r.differentiate {
		act = activation.TypeNone // the gradient jumps
	}
	what := fmt.Sprintf("dense %s %s", layout, act)
	v := p.putRounded(what, x.bound*w.bound*float64(in), nn.Dense(x.Node, w.Node, bias, layout, act), from...)
	p.tame(v)
}

// condition returns booleans of the given shape.
func (p *pool) condition(dims []int) (value, bool) {
	v, ok := p.pick(hasData(isExact(func(v value) bool { return isFloat(v) && slices.Equal(v.Shape().Dimensions, dims) })))
	if !ok {
		return value{}, false
	}
	x := v.Node
	y := Scalar(p.g, v.DType(), 0.1)
	switch p.IntN(4) {
	case 0:
		return p.put("less than 0.1", 1, LessThan(x, y), v), true
	case 1:
		return p.put("at least 0.1", 1, GreaterOrEqual(x, y), v), true
	case 2:
		return p.put("is finite", 1, IsFinite(x), v), true
	default:
		return p.put("greater than its neighbour", 1, GreaterThan(x, Reverse(x, consecutive(0, x.Rank())...)), v), true
	}
}

func (p *pool) where() {
	v, ok := p.pick(isFloat)
	if !ok {
		return
	}
	dims := v.Shape().Dimensions
	cond, ok := p.condition(dims)
	if !ok {
		return
	}
	w := p.shaped(v.DType(), dims...)
	p.put("where", max(v.bound, w.bound), Where(cond.Node, v.Node, w.Node), cond, v, w)
}

func (p *pool) logic() {
	v, ok := p.pick(isBool)
	if !ok {
		if x, ok := p.pick(isExact(isFloat)); ok {
			p.condition(x.Shape().Dimensions)
		}
		return
	}
	w, _ := p.pick(func(w value) bool { return isBool(w) && w.Shape().Equal(v.Shape()) })
	switch p.IntN(4) {
	case 0:
		p.put("and", 1, LogicalAnd(v.Node, w.Node), v, w)
	case 1:
		p.put("xor", 1, LogicalXor(v.Node, w.Node), v, w)
	case 2:
		p.put("not", 1, LogicalNot(v.Node), v)
	case 3:
		if v.Rank() > 0 && v.Shape().Size() > 0 {
			p.put("any", 1, LogicalAny(v.Node, p.IntN(v.Rank())), v)
		}
	}
}

// half converts to bfloat16.
func (p *pool) half(v value) value {
	h := p.put("bfloat16", v.bound, ConvertDType(v.Node, dtypes.BFloat16), v)
	return p.change(h, func(h *value) { h.coarse = h.coarse || !v.exact })
}

func (p *pool) convert() {
	switch p.IntN(5) {
	case 0:
		if v, ok := p.pick(func(v value) bool { return v.DType() == dtypes.Float32 }); ok {
			p.put("float64", v.bound, ConvertDType(v.Node, dtypes.Float64), v)
		}
	case 1:
		if v, ok := p.pick(func(v value) bool { return isFloat(v) && v.DType() != dtypes.Float32 }); ok {
			p.put("float32", v.bound, ConvertDType(v.Node, dtypes.Float32), v)
		}
	case 2:
		if v, ok := p.pick(hasData(isExact(isFloat))); ok && v.bound < 1000 {
			p.put("int32(7x)", 7*v.bound+1, StopGradient(ConvertDType(MulScalar(v.Node, 7), dtypes.Int32)), v)
		}
	case 3:
		if v, ok := p.pick(hasData(isInt)); ok {
			p.put("tanh(float32)", 1, StopGradient(Tanh(DivScalar(ConvertDType(v.Node, dtypes.Float32), 4))), v)
		}
	case 4:
		if v, ok := p.pick(func(v value) bool { return v.DType() == dtypes.Float32 }); ok {
			p.half(v)
		}
	}
}

func (p *pool) integer() {
	v, ok := p.pick(hasData(isInt))
	if !ok || v.bound > 1e6 {
		return
	}
	switch p.IntN(4) {
	case 0:
		p.put("3x+1", 3*v.bound+1, AddScalar(MulScalar(v.Node, 3), 1), v)
	case 1:
		p.put("mod 5", 5, Mod(Abs(v.Node), Scalar(p.g, dtypes.Int32, 5)), v)
	case 2:
		p.put("x²-x", v.bound*v.bound+v.bound, Sub(Mul(v.Node, v.Node), v.Node), v)
	case 3:
		if v.Rank() > 0 && v.Shape().Size() > 0 {
			axes := p.someAxes(v)
			p.put(fmt.Sprintf("sum %v", axes), v.bound*float64(elements(v, axes)), ReduceSum(v.Node, axes...), v)
		}
	}
}

func (p *pool) counting() {
	dims := p.size.dims(p.Rand, 1+p.IntN(3))
	shape := shapes.Make(dtypes.Float32, dims...)
	if shape.Size() > maxSize {
		return
	}
	if p.IntN(2) == 0 {
		shape.DType = dtypes.Int32
		axis := p.IntN(len(dims))
		p.put(fmt.Sprintf("iota %d", axis), float64(dims[axis]), Iota(p.g, shape, axis))
		return
	}
	p.put("sin(iota)", 1, Sin(IotaFull(p.g, shape)))
}

func (p *pool) cumSum() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok || v.DType() == dtypes.BFloat16 {
		return
	}
	v = p.tame(v)
	axis := p.IntN(v.Rank())
	bound := v.bound * float64(v.Shape().Dimensions[axis])
	p.tame(p.putRounded(fmt.Sprintf("cumulative sum %d", axis), bound, StopGradient(CumSum(v.Node, axis)), v))
}

func (p *pool) sort() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok {
		return
	}
	axis := p.IntN(v.Rank())
	if v.exact && p.IntN(2) == 0 {
		k := 1 + p.IntN(v.Shape().Dimensions[axis])
		values, at := TopK(v.Node, k, axis)
		p.put(fmt.Sprintf("top %d of %d", k, axis), v.bound, StopGradient(values), v)
		p.put(fmt.Sprintf("where top %d of %d", k, axis), float64(v.Shape().Dimensions[axis]), StopGradient(at), v)
		return
	}
	p.put(fmt.Sprintf("sort %d", axis), v.bound, StopGradient(Sort(v.Node, axis, p.IntN(2) == 0)), v)
}

// while iterates x ← tanh(x·c + w) with w taken from outside the loop.
func (p *pool) while() {
	v, ok := p.pick(hasData(isFloat))
	if !ok {
		return
	}
	v = p.tame(v)
	w := p.shaped(v.DType(), v.Shape().Dimensions...)
	times := 1 + p.IntN(4)
	cond := NewClosure(p.g, func(g *Graph) []*Node {
		n := Parameter(g, "n", shapes.Make(dtypes.Int32))
		Parameter(g, "x", v.Shape())
		return []*Node{LessThan(n, Const(g, int32(times)))}
	})
	body := NewClosure(p.g, func(g *Graph) []*Node {
		n := Parameter(g, "n", shapes.Make(dtypes.Int32))
		x := Parameter(g, "x", v.Shape())
		half := Const(g, 0.5)
		return []*Node{Add(n, Const(g, int32(1))), Tanh(Add(Mul(x, ConvertDType(half, v.DType())), w.Node))}
	})
	out := While(cond, body, Const(p.g, int32(0)), v.Node)
	p.put(fmt.Sprintf("while, %d times", times), 1, StopGradient(out[1]), v, w)
}

// branch chooses between two expressions of values from outside.
func (p *pool) branch() {
	v, ok := p.pick(isFloat)
	if !ok {
		return
	}
	w := p.shaped(v.DType(), v.Shape().Dimensions...)
	cond, ok := p.pick(func(c value) bool { return isBool(c) && c.Rank() == 0 })
	if !ok {
		x, ok := p.pick(hasData(isExact(isFloat)))
		if !ok {
			return
		}
		cond = p.put("max above 0.5", 1, GreaterThan(ReduceAllMax(x.Node), Scalar(p.g, x.DType(), 0.5)), x)
	}
	yes := NewClosure(p.g, func(*Graph) []*Node { return []*Node{Sub(v.Node, w.Node), w.Node} })
	no := NewClosure(p.g, func(*Graph) []*Node { return []*Node{v.Node, Mul(v.Node, w.Node)} })
	out := If(cond.Node, yes, no)
	bound := max(v.bound+w.bound, v.bound*w.bound)
	p.put("if, first", bound, StopGradient(out[0]), cond, v, w)
	p.put("if, second", bound, StopGradient(out[1]), cond, v, w)
}

func (p *pool) random() {
	shape := shapes.Make(dtypes.Float32, p.size.dims(p.Rand, 1+p.IntN(3))...)
	if shape.Size() > maxSize || shape.Size() == 0 {
		return
	}
	var x *Node
	if p.IntN(2) == 0 {
		p.rng, x = RandomUniform(p.rng, shape)
	} else {
		p.rng, x = RandomNormal(p.rng, shape)
	}
	p.put("random", 4, x)
}
