// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo_test

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/hlo"
	"github.com/easyparallel/epl/ir"
)

// Without XLA, an interpreter of the text says whether it means what it should. It follows the specification of StableHLO, and knows
// neither the IR nor how the text was made. Numbers are float64, rounded to their types.
func TestModulesMeanWhatTheProgramsDo(t *testing.T) {
	done, skipped := 0, 0
	run := func(name string, e example, p *ir.Program, in []any) {
		text, err := hlo.Module(emit.Whole(p), hlo.Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if notInterpreted.MatchString(text) || strings.Contains(e.params, "64[3]:bits") || strings.Contains(e.params, "64[]:bits") || strings.Contains(e.params, "64[2]:bits") {
			skipped++
			return
		}
		reference := p
		if e.ref != "" {
			reference = e.program(t, e.ref)
		}
		want, err := e.expected(reference, in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		got, err := interpret(text, in)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			return
		}
		done++
		for i, x := range got {
			flat := reflect.ValueOf(emptyOf(p.Main.Outputs[i]))
			for j, y := range x.at {
				set(flat.Index(j), y, 0)
			}
			if d := differences(flat.Interface(), want[i], max(e.tolerance, 2e-4)); d != "" {
				t.Errorf("%s: output %d, %s: %s", name, i, p.Main.Outputs[i].Op.Text(), d)
			}
		}
	}
	for _, family := range slices.Sorted(maps.Keys(families)) {
		for _, e := range families[family] {
			p := e.program(t, e.body)
			run(family+": "+e.name, e, p, inputs(e, p))
		}
	}
	for _, p := range recorded(t, 60) {
		if !isRandomProgram(p) && p.Main.Outputs[0].Shape.Size() < 1000 {
			run(p.Name, example{tolerance: slices.Max(tolerances(p))}, p, drawn(p))
		}
	}
	t.Logf("%d modules interpreted, %d skipped", done, skipped)
	if done < 250 {
		t.Errorf("only %d modules are interpreted: this tests little", done)
	}
}

// notInterpreted is what would need more than float64, or tests nothing.
var notInterpreted = regexp.MustCompile(`complex<|f8E|x[iu]*4>|stablehlo\.(fft|rng_|bitcast|batch_norm|popcnt|count_leading|shift_|all_|reduce_scatter)|18446744073709551615`)

// value is a tensor.
type value struct {
	typ  string
	dims []int
	at   []float64
}

// statement is an operation of the text.
type statement struct {
	results, args []string
	name, attrs   string
	types         []string
	regions       []block
}

type block struct {
	params, returned []string
	body             []statement
}

type interpreter struct {
	lines []string
	funcs map[string]block
	env   map[string]value
}

func interpret(text string, in []any) (out []value, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	m := &interpreter{lines: strings.Split(strings.TrimSpace(text), "\n")[1:], funcs: map[string]block{}, env: map[string]value{}}
	for i := range m.lines {
		m.lines[i] = strings.TrimSpace(m.lines[i])
	}
	var types []string
	for m.lines[0] != "}" {
		f := function.FindStringSubmatch(m.next())
		var params []string
		for _, p := range parameter.FindAllStringSubmatch(f[2], -1) {
			params = append(params, p[1])
			if f[1] == "main" {
				types = append(types, p[2])
			}
		}
		b := m.block()
		b.params = params
		m.next()
		m.funcs[f[1]] = b
	}
	args := make([]value, len(in))
	for i, x := range in {
		v := empty(types[i])
		flat := reflect.ValueOf(x)
		for j := range v.at {
			v.at[j] = numberOf(flat.Index(j))
		}
		args[i] = v
	}
	return m.call(m.funcs["main"], args...), nil
}

func numberOf(v reflect.Value) float64 {
	if x, ok := float(v.Interface()); ok {
		return x
	}
	if v.Kind() == reflect.Bool {
		if v.Bool() {
			return 1
		}
		return 0
	}
	return v.Convert(reflect.TypeFor[float64]()).Float()
}

func (m *interpreter) next() string {
	l := m.lines[0]
	m.lines = m.lines[1:]
	return l
}

// block reads operations up to the end of a function or region.
func (m *interpreter) block() (b block) {
	for !strings.HasPrefix(m.lines[0], "}") {
		line := m.next()
		switch {
		case strings.HasPrefix(line, "^bb0("):
			b.params = name.FindAllString(line, -1)
			continue
		case strings.HasPrefix(line, "return") || strings.HasPrefix(line, `"stablehlo.return"`):
			b.returned = name.FindAllString(line, -1)
			continue
		}
		var s statement
		if head, ok := strings.CutSuffix(line, " ({"); ok {
			for line = "}, {"; line == "}, {"; line = m.next() {
				s.regions = append(s.regions, m.block())
			}
			line = head + strings.TrimPrefix(line, "})")
		}
		o, sig := operation.FindStringSubmatch(line), signature.FindStringSubmatch(line)
		s.results, s.args = name.FindAllString(o[1], -1), name.FindAllString(o[2], -1)
		s.name, _, _ = strings.Cut(strings.Trim(o[2], `"`), `"`)
		s.attrs, s.types = o[3], tensor.FindAllString(sig[2], -1)
		b.body = append(b.body, s)
	}
	return b
}

func (m *interpreter) call(b block, args ...value) []value {
	for i, p := range b.params {
		m.env[p] = args[i]
	}
	for _, s := range b.body {
		in := make([]value, len(s.args))
		for i, a := range s.args {
			in[i] = m.env[a]
		}
		for i, v := range m.run(s, in) {
			m.env[s.results[i]] = v
		}
	}
	out := make([]value, len(b.returned))
	for i, r := range b.returned {
		out[i] = m.env[r]
	}
	return out
}

// empty is a tensor of a type, with zeros.
func empty(typ string) value {
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(typ, "tensor<"), ">"), "x")
	v := value{typ: parts[len(parts)-1]}
	n := 1
	for _, p := range parts[:len(parts)-1] {
		d, _ := strconv.Atoi(p)
		v.dims = append(v.dims, d)
		n *= d
	}
	v.at = make([]float64, n)
	return v
}

func (v value) offset(at []int) (i int) {
	for d, n := range v.dims {
		i = i*n + at[d]
	}
	return i
}

func (v value) get(at []int) float64 { return v.at[v.offset(at)] }

func scalar(typ string, x float64) value { return value{typ: typ, at: []float64{x}} }

// fill computes every element.
func (v value) fill(f func(at []int) float64) value {
	positions(v.dims, func(at []int) { v.at[v.offset(at)] = rounded(v.typ, f(at)) })
	return v
}

func positions(dims []int, do func(at []int)) {
	for _, d := range dims {
		if d == 0 {
			return
		}
	}
	at := make([]int, len(dims))
	for {
		do(at)
		d := len(dims) - 1
		for ; d >= 0; d-- {
			if at[d]++; at[d] < dims[d] {
				break
			}
			at[d] = 0
		}
		if d < 0 {
			return
		}
	}
}

func width(typ string) int {
	n, _ := strconv.Atoi(strings.TrimLeft(typ, "uibf"))
	return n
}

func rounded(typ string, x float64) float64 {
	switch {
	case typ == "f64":
	case typ == "f32":
		return float64(float32(x))
	case typ == "bf16":
		return float64(bfloat16.FromFloat32(float32(x)).Float32())
	case typ == "f16":
		return float64(float16.FromFloat32(float32(x)).Float32())
	case typ == "i1":
		if x != 0 {
			return 1
		}
		return 0
	case width(typ) < 64: // whole numbers wrap
		n := width(typ)
		if math.IsNaN(x) {
			return 0
		}
		i := int64(math.Trunc(x)) & (1<<n - 1)
		if typ[0] == 'i' && i >= 1<<(n-1) {
			i -= 1 << n
		}
		return float64(i)
	default:
		return math.Trunc(x)
	}
	return x
}

// Attributes.

func numbersIn(text string) (r []int) {
	for _, w := range regexp.MustCompile(`-?\d+`).FindAllString(text, -1) {
		n, _ := strconv.Atoi(w)
		r = append(r, n)
	}
	return r
}

func (s statement) attr(pattern string) string {
	m := regexp.MustCompile(pattern).FindStringSubmatch(s.attrs)
	if m == nil {
		panic("no " + pattern + " in " + s.attrs)
	}
	return m[1]
}

func (s statement) array(name string) []int {
	return numbersIn(s.attr(`\b` + name + ` = array<i64:?([^>]*)>`))
}
func (s statement) list(name string) []int { return numbersIn(s.attr(`\b` + name + ` = \[([^\]]*)\]`)) }
func (s statement) number(name string) int { return numbersIn(s.attr(`\b` + name + ` = (\d+)`))[0] }
func (s statement) padding() []int         { return numbersIn(s.attr(`\bpadding = dense<([^>]*)>`)) }

func (m *interpreter) run(s statement, in []value) []value {
	n := strings.TrimPrefix(strings.TrimPrefix(s.name, "stablehlo."), "chlo.")
	var outs []value
	for _, t := range s.types {
		outs = append(outs, empty(t))
	}
	if f, ok := unaries[n]; ok {
		return []value{outs[0].fill(func(at []int) float64 { return f(in[0].get(at)) })}
	}
	if f, ok := binaries[n]; ok {
		return []value{outs[0].fill(func(at []int) float64 { return f(in[0].typ, in[0].get(at), in[1].get(at)) })}
	}
	switch n {
	case "func.call":
		return m.call(m.funcs[s.attr(`callee = @(\w+)`)], in...)
	case "optimization_barrier":
		return in
	case "while":
		for m.call(s.regions[0], in...)[0].at[0] != 0 {
			in = m.call(s.regions[1], in...)
		}
		return in
	case "if":
		if in[0].at[0] != 0 {
			return m.call(s.regions[0])
		}
		return m.call(s.regions[1])
	case "sort":
		return m.sort(s, in, outs)
	case "reduce":
		return m.reduce(s, in, outs)
	}
	return []value{m.one(n, s, in, outs[0])}
}

var unaries = map[string]func(x float64) float64{
	"abs": math.Abs, "ceil": math.Ceil, "cosine": math.Cos, "exponential": math.Exp, "exponential_minus_one": math.Expm1, "floor": math.Floor,
	"log": math.Log, "log_plus_one": math.Log1p, "round_nearest_even": math.RoundToEven, "sine": math.Sin, "sqrt": math.Sqrt, "tanh": math.Tanh, "erf": math.Erf,
	"logistic": func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
	"negate":   func(x float64) float64 { return -x }, "rsqrt": func(x float64) float64 { return 1 / math.Sqrt(x) },
	"convert":   func(x float64) float64 { return x },
	"is_finite": func(x float64) float64 { return truth(!math.IsNaN(x) && !math.IsInf(x, 0)) },
	"sign": func(x float64) float64 {
		if x == 0 || math.IsNaN(x) {
			return x
		}
		return math.Copysign(1, x)
	},
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var binaries = map[string]func(typ string, x, y float64) float64{
	"add": func(_ string, x, y float64) float64 { return x + y }, "subtract": func(_ string, x, y float64) float64 { return x - y },
	"multiply": func(_ string, x, y float64) float64 { return x * y },
	"divide": func(typ string, x, y float64) float64 {
		if strings.Contains(typ, "f") {
			return x / y
		}
		return math.Trunc(x / y)
	},
	"maximum":   func(_ string, x, y float64) float64 { return max(x, y) },
	"minimum":   func(_ string, x, y float64) float64 { return min(x, y) },
	"power":     func(_ string, x, y float64) float64 { return math.Pow(x, y) },
	"remainder": func(_ string, x, y float64) float64 { return math.Mod(x, y) },
	"atan2":     func(_ string, x, y float64) float64 { return math.Atan2(x, y) },
	"and":       func(_ string, x, y float64) float64 { return float64(int64(x) & int64(y)) },
	"or":        func(_ string, x, y float64) float64 { return float64(int64(x) | int64(y)) },
	"xor":       func(_ string, x, y float64) float64 { return float64(int64(x) ^ int64(y)) },
}

func (m *interpreter) one(n string, s statement, in []value, out value) value {
	switch n {
	case "constant":
		return constant(s, out)
	case "not":
		return out.fill(func(at []int) float64 {
			if out.typ == "i1" {
				return 1 - in[0].get(at)
			}
			return float64(^int64(in[0].get(at)))
		})
	case "compare":
		return out.fill(func(at []int) float64 { return compared(s, in[0].get(at), in[1].get(at)) })
	case "select":
		return out.fill(func(at []int) float64 {
			if in[0].get(at) != 0 {
				return in[1].get(at)
			}
			return in[2].get(at)
		})
	case "clamp":
		bound := func(v value, at []int) float64 {
			if len(v.dims) == 0 {
				return v.at[0]
			}
			return v.get(at)
		}
		return out.fill(func(at []int) float64 { return min(max(in[1].get(at), bound(in[0], at)), bound(in[2], at)) })
	case "iota":
		d := s.number("iota_dimension")
		return out.fill(func(at []int) float64 { return float64(at[d]) })
	case "reshape":
		copy(out.at, in[0].at)
		if len(out.at) != len(in[0].at) {
			panic("reshape changes the size")
		}
		return out
	case "broadcast_in_dim":
		to := s.array("broadcast_dimensions")
		return out.fill(func(at []int) float64 {
			from := make([]int, len(to))
			for i, d := range to {
				if in[0].dims[i] != 1 {
					from[i] = at[d]
				}
				if in[0].dims[i] != 1 && in[0].dims[i] != out.dims[d] {
					panic("a dim cannot be broadcast")
				}
			}
			return in[0].get(from)
		})
	case "transpose":
		p := s.array("permutation")
		return out.fill(func(at []int) float64 {
			from := make([]int, len(p))
			for i, d := range p {
				from[d] = at[i]
			}
			return in[0].get(from)
		})
	case "slice":
		start, stride := s.array("start_indices"), s.array("strides")
		return out.fill(func(at []int) float64 {
			from := make([]int, len(at))
			for i := range at {
				from[i] = start[i] + at[i]*stride[i]
			}
			return in[0].get(from)
		})
	case "dynamic_slice", "dynamic_update_slice":
		return dynamic(n, in, out)
	case "concatenate":
		d := s.number("dimension")
		return out.fill(func(at []int) float64 {
			from := slices.Clone(at)
			for _, x := range in {
				if from[d] < x.dims[d] {
					return x.get(from)
				}
				from[d] -= x.dims[d]
			}
			panic("beyond the end")
		})
	case "reverse":
		ds := s.array("dimensions")
		return out.fill(func(at []int) float64 {
			from := slices.Clone(at)
			for _, d := range ds {
				from[d] = out.dims[d] - 1 - from[d]
			}
			return in[0].get(from)
		})
	case "pad":
		low, interior := s.array("edge_padding_low"), s.array("interior_padding")
		return out.fill(func(at []int) float64 {
			from := make([]int, len(at))
			for d := range at {
				i := at[d] - low[d]
				if i < 0 || i%(interior[d]+1) != 0 || i/(interior[d]+1) >= in[0].dims[d] {
					return in[1].at[0]
				}
				from[d] = i / (interior[d] + 1)
			}
			return in[0].get(from)
		})
	case "dot_general":
		return dotted(s, in, out)
	case "convolution":
		return convolved(s, in, out)
	case "gather":
		return gathered(s, in, out)
	case "scatter":
		return m.scattered(s, in, out)
	case "reduce_window":
		return m.windows(s, in, out)
	case "select_and_scatter":
		return m.selected(s, in, out)
	}
	panic("no " + n)
}

func compared(s statement, x, y float64) float64 {
	if strings.Contains(s.attrs, "TOTALORDER") {
		key := func(x float64) float64 {
			b := int32(math.Float32bits(float32(x)))
			if b < 0 {
				b ^= math.MaxInt32
			}
			return float64(b)
		}
		x, y = key(x), key(y)
	}
	switch s.attr(`#stablehlo<comparison_direction (\w+)>`) {
	case "EQ":
		return truth(x == y)
	case "NE":
		return truth(x != y)
	case "LT":
		return truth(x < y)
	case "LE":
		return truth(x <= y)
	case "GT":
		return truth(x > y)
	}
	return truth(x >= y)
}
