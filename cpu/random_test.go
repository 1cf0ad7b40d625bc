package cpu_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

var seeds = flag.Int("cpu.seeds", 300, "random programs to run")

// opByOp is GoMLX's pure-Go backend, the oracle.
func opByOp(t testing.TB) compute.Backend {
	t.Helper()
	b, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// engines are the devices that must agree with each other, bit for bit.
func engines(t testing.TB) map[string]compute.Backend {
	list := map[string]compute.Backend{
		"fused":           cpu.New(opByOp(t), 1),
		"fused 3 threads": cpu.New(opByOp(t), 3),
		"unfused":         cpu.New(opByOp(t), 1, cpu.Unfused()),
		"no views":        cpu.New(opByOp(t), 1, cpu.Without("views")),
		"not in place":    cpu.New(opByOp(t), 1, cpu.Without("in-place", "fuse-elementwise")),
		"no reductions":   cpu.New(opByOp(t), 1, cpu.Without("fuse-reduce", "fuse-dot")),
	}
	for _, b := range list {
		t.Cleanup(b.Finalize)
	}
	return list
}

// writer makes random programs.
type writer struct {
	*rand.Rand
	p      *ir.Program
	values []*ir.Value // that ops may read
	order  bool        // whether some result depends on the order of a sum
}

func (w *writer) add(a ir.Attrs, shape shapes.Shape, in ...*ir.Value) *ir.Value {
	op := w.p.NewOp(a, in, shape)
	w.p.Main.Append(op)
	w.values = append(w.values, op.Outputs[0])
	return op.Outputs[0]
}

func (w *writer) dims() []int {
	d := make([]int, w.IntN(4))
	for i := range d {
		d[i] = []int{1, 2, 3, 5, 8, 17, 33}[w.IntN(7)]
	}
	return d
}

func (w *writer) pick() *ir.Value { return w.values[w.IntN(len(w.values))] }

// like finds or makes a value of the same type and dims.
func (w *writer) like(v *ir.Value) *ir.Value {
	var same []*ir.Value
	for _, o := range w.values {
		if o.Shape.Equal(v.Shape) {
			same = append(same, o)
		}
	}
	if w.IntN(4) == 0 { // broadcast from fewer dims
		s := v.Shape.Clone()
		for i := range s.Dimensions {
			if w.IntN(2) == 0 {
				s.Dimensions[i] = 1
			}
		}
		for _, o := range w.values {
			if o.Shape.Equal(s) {
				return w.add(&ir.BroadcastInDim{OutputShape: v.Shape, BroadcastAxes: seq(len(s.Dimensions))}, v.Shape, o)
			}
		}
	}
	return same[w.IntN(len(same))]
}

func seq(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func (w *writer) step() {
	x := w.pick()
	d, dims := x.Shape.DType, x.Shape.Dimensions
	float := d == dtypes.Float32 || d == dtypes.Float64
	switch w.IntN(16) {
	case 0, 1, 2:
		if d == dtypes.Bool {
			w.add([]ir.Attrs{&ir.LogicalAnd{}, &ir.LogicalOr{}, &ir.LogicalXor{}}[w.IntN(3)], x.Shape, x, w.like(x))
			return
		}
		w.add([]ir.Attrs{&ir.Add{}, &ir.Sub{}, &ir.Mul{}, &ir.Max{}, &ir.Min{}}[w.IntN(5)], x.Shape, x, w.like(x))
	case 3:
		if float {
			w.add([]ir.Attrs{&ir.Exp{}, &ir.Tanh{}, &ir.Erf{}, &ir.Logistic{}, &ir.Sqrt{}, &ir.Log1p{}, &ir.Sin{}}[w.IntN(7)], x.Shape, w.add(&ir.Abs{}, x.Shape, x))
		}
	case 4:
		if d != dtypes.Bool {
			w.add([]ir.Attrs{&ir.Neg{}, &ir.Abs{}, &ir.Sign{}}[w.IntN(3)], x.Shape, x)
		}
	case 5:
		if d != dtypes.Bool {
			c := w.add([]ir.Attrs{&ir.GreaterThan{}, &ir.Equal{}, &ir.LessOrEqual{}}[w.IntN(3)], shapes.Make(dtypes.Bool, dims...), x, w.like(x))
			w.add(&ir.Where{}, x.Shape, c, x, w.like(x))
		}
	case 6, 7:
		if len(dims) > 0 && d != dtypes.Bool {
			axes := []int{}
			kept := []int{}
			for i, n := range dims {
				if w.IntN(2) == 0 {
					axes = append(axes, i)
				} else {
					kept = append(kept, n)
				}
			}
			if len(axes) == 0 {
				axes, kept = []int{len(dims) - 1}, dims[:len(dims)-1]
			}
			a := []ir.Attrs{&ir.ReduceSum{Axes: axes}, &ir.ReduceMax{Axes: axes}, &ir.ReduceSum{Axes: axes}, &ir.ReduceMin{Axes: axes}}[w.IntN(4)]
			if _, ok := a.(*ir.ReduceSum); ok && float {
				w.order = true
			}
			r := w.add(a, shapes.Make(d, kept...), x)
			if w.IntN(2) == 0 { // back again, as softmax and layer norm do
				axes := slices.DeleteFunc(seq(len(dims)), func(i int) bool { return slices.Contains(axes, i) })
				b := w.add(&ir.BroadcastInDim{OutputShape: x.Shape, BroadcastAxes: axes}, x.Shape, r)
				w.add([]ir.Attrs{&ir.Sub{}, &ir.Mul{}}[w.IntN(2)], x.Shape, x, b)
			}
		}
	case 8:
		perm := w.Perm(len(dims))
		to := make([]int, len(dims))
		for i, k := range perm {
			to[i] = dims[k]
		}
		w.add(&ir.Transpose{Permutation: perm}, shapes.Make(d, to...), x)
	case 9:
		to := []int{x.Shape.Size()}
		switch {
		case w.IntN(2) == 0 && len(dims) > 1:
			to = append([]int{dims[0] * dims[1]}, dims[2:]...)
		case w.IntN(2) == 0:
			to = append([]int{1}, dims...)
		}
		w.add(&ir.Reshape{Dimensions: to}, shapes.Make(d, to...), x)
	case 10:
		if len(dims) > 0 {
			a := &ir.Slice{Starts: make([]int, len(dims)), Limits: slices.Clone(dims), Strides: make([]int, len(dims))}
			to := make([]int, len(dims))
			for i, n := range dims {
				a.Starts[i], a.Strides[i] = w.IntN(n), 1+w.IntN(2)
				to[i] = (n - a.Starts[i] + a.Strides[i] - 1) / a.Strides[i]
			}
			w.add(a, shapes.Make(d, to...), x)
			w.add(&ir.Reverse{Axes: []int{w.IntN(len(dims))}}, x.Shape, x)
		}
	case 11:
		if d == dtypes.Float32 || d == dtypes.Int32 {
			to := []dtypes.DType{dtypes.Float32, dtypes.Float64, dtypes.Int32, dtypes.BFloat16}[w.IntN(3)]
			if d == dtypes.Float32 && to == dtypes.Int32 {
				return // of large numbers: not defined
			}
			w.add(&ir.ConvertDType{DType: to}, shapes.Make(to, dims...), x)
		}
	case 12:
		if float && len(dims) > 1 {
			y := w.like(x)
			k := len(dims) - 1
			var batch []int
			if len(dims) > 2 && w.IntN(2) == 0 {
				batch = []int{0}
			}
			var out []int
			free := slices.DeleteFunc(seq(len(dims)), func(i int) bool { return i == k || slices.Contains(batch, i) })
			for _, i := range slices.Concat(batch, free, free) {
				out = append(out, dims[i])
			}
			if product(out) > 1<<16 {
				return
			}
			w.order = true
			w.add(&ir.DotGeneral{LHSContractingAxes: []int{k}, LHSBatchAxes: batch, RHSContractingAxes: []int{k}, RHSBatchAxes: batch}, shapes.Make(d, out...), x, y)
		}
	case 14:
		if len(dims) > 0 && d != dtypes.Bool {
			a, to := &ir.Pad{}, slices.Clone(dims)
			for i, n := range dims {
				c := compute.PadAxis{Start: w.IntN(3), End: w.IntN(2), Interior: w.IntN(2)}
				a.AxesConfig = append(a.AxesConfig, c)
				to[i] = c.Start + c.End + n + (n-1)*c.Interior
			}
			zero := w.add(&ir.ReduceMin{Axes: seq(len(dims))}, shapes.Make(d), x)
			w.add(a, shapes.Make(d, to...), x, zero)
		}
	case 15:
		if len(dims) > 0 && d != dtypes.Bool {
			n := 1 + w.IntN(5)
			i := w.add(&ir.Iota{Shape: shapes.Make(dtypes.Int32, n, 1), IotaAxis: 0}, shapes.Make(dtypes.Int32, n, 1))
			i = w.add(&ir.Min{}, i.Shape, i, w.constant(int32(dims[0]-1), i.Shape))
			rest := dims[1:]
			slice := append([]int{1}, rest...)
			g := w.add(&ir.Gather{IndexVectorAxis: 1, OffsetOutputAxes: seq(len(dims))[1:], CollapsedSliceAxes: []int{0}, StartIndexMap: []int{0}, SliceSizes: slice},
				shapes.Make(d, append([]int{n}, rest...)...), x, i)
			if d == dtypes.Float32 {
				w.add(&ir.ScatterSum{IndexVectorAxis: 1, UpdateWindowAxes: seq(len(dims))[1:], InsertedWindowAxes: []int{0}, ScatterAxesToOperandAxes: []int{0}}, x.Shape, x, i, g)
			}
		}
	case 13:
		if len(dims) > 0 {
			w.add(&ir.Iota{Shape: shapes.Make(dtypes.Float32, dims...), IotaAxis: w.IntN(len(dims))}, shapes.Make(dtypes.Float32, dims...))
			w.add(&ir.Concatenate{Axis: 0}, shapes.Make(d, append([]int{2 * dims[0]}, dims[1:]...)...), x, w.like(x))
		}
	}
}

func (w *writer) constant(x int32, s shapes.Shape) *ir.Value {
	flat := make([]int32, s.Size())
	for i := range flat {
		flat[i] = x
	}
	return w.add(&ir.Constant{Value: ir.Literal{Shape: s, Flat: flat}}, s)
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// program writes a random program, and its inputs.
func program(seed uint64) (*writer, []any) {
	w := &writer{Rand: rand.New(rand.NewPCG(seed, 7)), p: ir.NewProgram(fmt.Sprint("random ", seed))}
	var inputs []any
	for i := range 2 + w.IntN(3) {
		s := shapes.Make([]dtypes.DType{dtypes.Float32, dtypes.Float32, dtypes.Float64, dtypes.Int32}[w.IntN(4)], w.dims()...)
		w.add(&ir.Parameter{Name: fmt.Sprint("arg", i), Shape: s}, s)
		inputs = append(inputs, content(w.Rand, s))
	}
	for range 5 + w.IntN(40) {
		w.step()
	}
	for range 1 + w.IntN(5) {
		w.p.Main.Outputs = append(w.p.Main.Outputs, w.pick())
	}
	// The oracle wants every parameter to be used.
	w.p.Main.Outputs = append(w.p.Main.Outputs, w.p.Main.Params...)
	return w, inputs
}

func content(r *rand.Rand, s shapes.Shape) any {
	flat := reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), s.Size(), s.Size())
	for i := range s.Size() {
		switch s.DType {
		case dtypes.Float32, dtypes.Float64:
			flat.Index(i).SetFloat(float64(float32(r.NormFloat64() / 2)))
		default:
			flat.Index(i).SetInt(int64(r.IntN(9)) - 4)
		}
	}
	return flat.Interface()
}

// execute compiles and runs a program.
func execute(t testing.TB, b compute.Backend, p *ir.Program, inputs []any) []any {
	t.Helper()
	x, err := emit.Program(b, p)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer x.Finalize()
	var ins []compute.Buffer
	for i, v := range p.Main.Params {
		buf, err := b.BufferFromFlatData(0, inputs[i], v.Shape)
		if err != nil {
			t.Fatal(err)
		}
		ins = append(ins, buf)
	}
	outs, err := x.Execute(ins, nil, 0)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	var all []any
	for i, o := range outs {
		s := p.Main.Outputs[i].Shape
		flat := reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), s.Size(), s.Size()).Interface()
		if err := o.ToFlatData(flat); err != nil {
			t.Fatal(err)
		}
		all = append(all, flat)
	}
	return all
}

// same tells whether two results are the same bits (NaN is NaN), or within a relative error.
func same(a, b any, tolerance float64) error {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	largest := 0.0
	for i := range x.Len() {
		if x.Index(i).CanFloat() && !math.IsNaN(x.Index(i).Float()) && !math.IsInf(x.Index(i).Float(), 0) {
			largest = max(largest, math.Abs(x.Index(i).Float()))
		}
	}
	for i := range x.Len() {
		u, v := x.Index(i), y.Index(i)
		if u.CanFloat() {
			f, g := u.Float(), v.Float()
			if f == g || math.IsNaN(f) && math.IsNaN(g) || math.Abs(f-g) <= tolerance*largest {
				continue
			}
		} else if u.Equal(v) {
			continue
		}
		return fmt.Errorf("element %d: %v and %v", i, u, v)
	}
	return nil
}

func checkProgram(t *testing.T, w *writer, inputs []any, list map[string]compute.Backend, oracle compute.Backend) {
	t.Helper()
	want := execute(t, oracle, w.p, inputs)
	var first []any
	for name, b := range list {
		got := execute(t, b, w.p, inputs)
		if first == nil {
			first = got
		}
		for i := range got {
			if err := same(first[i], got[i], 0); err != nil {
				t.Fatalf("output %d of %q and of another engine differ: %v\n%s", i, name, err, w.p)
			}
			tolerance := 0.0
			if w.order {
				tolerance = 1e-4
			}
			if err := same(want[i], got[i], tolerance); err != nil && !w.chaotic() {
				t.Fatalf("output %d of %q and of the oracle differ: %v\n%s", i, name, err, w.p)
			}
		}
	}
}

// chaotic tells whether rounding may change results at will: sums that are compared.
func (w *writer) chaotic() bool {
	if !w.order {
		return false
	}
	for _, op := range w.p.Main.Ops {
		switch op.Attrs.(type) {
		case *ir.Equal, *ir.GreaterThan, *ir.LessOrEqual, *ir.Sign, *ir.Exp, *ir.Sin:
			return true
		}
	}
	return false
}

func TestRandomProgramsGiveTheResultsOfTheBackendFusedAndUnfused(t *testing.T) {
	oracle, list := opByOp(t), engines(t)
	defer oracle.Finalize()
	n := uint64(*seeds)
	if testing.Short() {
		n = 60
	}
	for seed := range n {
		w, inputs := program(seed)
		checkProgram(t, w, inputs, list, oracle)
	}
}
