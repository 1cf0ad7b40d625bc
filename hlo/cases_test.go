// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// example is a small program. Cases of a family whose names have no slash are in its golden file.
type example struct {
	name string
	// params are the shapes of the inputs, with the kind of numbers that they have: "float32[2,3] int32[4]:index5". See [numbers].
	params string
	// body are the ops, numbered after the params. A line that starts with a blank, "%", "}" or "return" is as it is. Without
	// "return", all outputs of all ops are returned.
	body string
	// apart: the lines have nothing to do with each other, so that each can be tried alone.
	apart bool

	// What is compared: with the pure-Go backend on the same program, or on another one, or with a function.
	ref  string
	want func(in []any) []any
	// tolerance is that of float32, relative to the larger of 1 and the number; 0 is 1e-5. Half precision has more in any case.
	tolerance float64
}

// text is the program of a body.
func (e example) text(body string) string {
	var w strings.Builder
	fmt.Fprintf(&w, "program %q\n", e.name)
	params := strings.Fields(e.params)
	for i := range params {
		fmt.Fprintf(&w, "input %%%d\n", i)
	}
	lines := strings.Split(strings.Trim(body, "\n"), "\n")
	i := 0
	for ; i < len(lines) && strings.HasPrefix(lines[i], "func "); i++ { // functions stand first
		for ; lines[i] != "}"; i++ {
			w.WriteString(phase(lines[i]) + "\n")
		}
		w.WriteString("}\n")
	}
	w.WriteString("main {\n")
	for i, p := range params {
		shape, _, _ := strings.Cut(p, ":")
		fmt.Fprintf(&w, "%%%d = Parameter() {Name: \"arg%d\", Shape: %s} -> %s : forward\n", i, i, shape, shape)
	}
	n := len(params)
	var results []string
	returned := false
	for _, line := range lines[i:] {
		if line != "" && !strings.ContainsAny(line[:1], " %}") && !strings.HasPrefix(line, "return") {
			line = fmt.Sprintf("%%%d = %s", n, line)
			n++
		}
		if at := strings.LastIndex(line, "->"); at >= 0 && !strings.HasPrefix(line, " ") {
			id := n - 1
			for j := range strings.Count(line[at:], "[") {
				if j == 0 {
					results = append(results, fmt.Sprintf("%%%d", id))
				} else {
					results = append(results, fmt.Sprintf("%%%d.%d", id, j))
				}
			}
		}
		returned = returned || strings.HasPrefix(line, "return")
		w.WriteString(phase(line) + "\n")
	}
	if !returned {
		fmt.Fprintf(&w, "return %s\n", strings.Join(results, ", "))
	}
	w.WriteString("}\n")
	return w.String()
}

// phase completes the line of an op.
func phase(line string) string {
	if strings.Contains(line, "->") {
		return line + " : forward"
	}
	return line
}

func (e example) program(t testing.TB, body string) *ir.Program {
	t.Helper()
	p, err := ir.Parse(e.text(body))
	if err == nil {
		err = p.Verify()
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", e.name, err, e.text(body))
	}
	return p
}

// each makes one example of lines for several inputs: "%s" in the line is the number of the input, "%t" its shape.
func each(name, params, line string) example {
	e := example{name: name, params: params, apart: true}
	for i, p := range strings.Fields(params) {
		shape, _, _ := strings.Cut(p, ":")
		l := strings.ReplaceAll(strings.ReplaceAll(line, "%t", shape), "%s", fmt.Sprint("%", i))
		dtype, dims, _ := strings.Cut(shape, "[")
		l = strings.ReplaceAll(strings.ReplaceAll(l, "%d", "["+dims), "%e", dtype)
		e.body += l + "\n"
	}
	return e
}

// families are the cases, by the file that writes them.
var families = map[string][]example{
	"elementwise": elementwiseCases(),
	"shape":       shapeCases(),
	"reduce":      reduceCases(),
	"dot":         dotCases(),
	"gather":      gatherCases(),
	"control":     controlCases(),
	"special":     specialCases(),
	"fused":       fusedCases(),
	"attention":   attentionCases(),
}

func elementwiseCases() (cases []example) {
	floats := "float32[2,3] float32[12]:edge float64[] bfloat16[5] float16[5] float32[0,3] float64[12]:edge"
	for _, op := range []string{"Abs", "Ceil", "Cos", "Erf", "Exp", "Expm1", "Floor", "Logistic", "Neg", "Round", "Sign", "Sin", "Tanh", "Log", "Log1p", "Rsqrt", "Sqrt"} {
		params := floats
		if strings.HasPrefix(op, "Log") && op != "Logistic" || strings.HasSuffix(op, "sqrt") {
			params = "float32[2,3]:positive float32[12]:edge float64[]:positive bfloat16[5]:positive float16[5]:positive float32[0,3] float64[12]:edge"
		}
		if op == "Sign" {
			params = strings.ReplaceAll(params, ":edge", "") // the pure-Go backend has sign 0 for NaN
		}
		cases = append(cases, each("unary/"+op, params, op+"(%s) -> %t"))
	}
	cases = append(cases, example{name: "edges/Sign", params: "float32[12]:edge", body: "Sign(%0) -> float32[12]", want: func(in []any) []any {
		r := slices.Clone(in[0].([]float32))
		for i, x := range r {
			if x != 0 && x == x {
				r[i] = float32(math.Copysign(1, float64(x)))
			}
		}
		return []any{r}
	}})
	for _, op := range []string{"IsFinite", "IsNaN"} {
		cases = append(cases, each("unary/"+op, "float32[12]:edge float64[12]:edge bfloat16[12]:edge float16[12]:edge float32[]", op+"(%s) -> bool%d"))
	}
	for _, op := range []string{"Abs", "Neg", "Sign"} {
		cases = append(cases, each("integers/"+op, "int32[2,3] int8[5] int64[] int16[4]", op+"(%s) -> %t"))
	}
	bits := "int32[2,3]:bits uint8[7]:bits int64[3]:bits uint16[5]:bits int8[]:bits uint64[3]:bits uint32[4]:bits int16[0]"
	for _, op := range []string{"BitCount", "Clz", "BitwiseNot"} {
		cases = append(cases, each("bits/"+op, bits, op+"(%s) -> %t"))
	}
	for _, op := range []string{"BitwiseAnd", "BitwiseOr", "BitwiseXor"} {
		cases = append(cases, each("bits/"+op, bits, op+"(%s, %s) -> %t"), example{name: "bits/" + op + " of two", params: "int32[5]:bits int32[5]:bits int32[]:bits",
			body: op + "(%0, %1) -> int32[5]\n" + op + "(%0, %2) -> int32[5]\n" + op + "(%2, %1) -> int32[5]"})
	}
	for _, op := range []string{"ShiftLeft", "ShiftRightArithmetic", "ShiftRightLogical"} {
		e := example{name: "bits/" + op, apart: true, params: "int32[6]:bits int32[6]:index31 uint8[4]:bits uint8[4]:index7 int64[]:bits int64[]:index63 int32[]:=3",
			body: op + "(%0, %1) -> int32[6]\n" + op + "(%2, %3) -> uint8[4]\n" + op + "(%4, %5) -> int64[]\n" + op + "(%0, %6) -> int32[6]"}
		if op == "ShiftRightArithmetic" { // XLA takes the first bit as the sign whatever the type is, the pure-Go backend only that of signed types
			e.body = strings.Replace(e.body, op+"(%2, %3) -> uint8[4]\n", "", 1)
			cases = append(cases, example{name: "edges/" + op, params: "uint8[4]:bits uint8[4]:index7", body: op + "(%0, %1) -> uint8[4]", want: func(in []any) []any {
				r := slices.Clone(in[0].([]uint8))
				for i, n := range in[1].([]uint8) {
					r[i] = uint8(int8(r[i]) >> n)
				}
				return []any{r}
			}})
		}
		cases = append(cases, e)
	}
	for _, op := range []string{"LogicalAnd", "LogicalOr", "LogicalXor"} {
		cases = append(cases, example{name: "logic/" + op, params: "bool[7] bool[7] bool[]", body: op + "(%0, %1) -> bool[7]\n" + op + "(%0, %2) -> bool[7]"})
	}
	cases = append(cases, example{name: "logic/not", params: "bool[7] bool[]", body: "LogicalNot(%0) -> bool[7]\nLogicalNot(%1) -> bool[]"})

	binary := func(op, kind, out string) example {
		return example{name: "binary/" + op, apart: true,
			params: strings.ReplaceAll("float32[2,3]K float32[2,3]K float32[]K float32[2,1]K float32[1,3]K float64[4]K float64[4]K bfloat16[5]K bfloat16[5]K float16[5]K float16[5]K float32[0,3] float32[0,3]", "K", kind),
			body: strings.ReplaceAll(op+"(%0, %1) -> OUTfloat32[2,3]\n"+op+"(%0, %2) -> OUTfloat32[2,3]\n"+op+"(%2, %1) -> OUTfloat32[2,3]\n"+op+"(%3, %4) -> OUTfloat32[2,3]\n"+op+"(%0, %4) -> OUTfloat32[2,3]\n"+
				op+"(%5, %6) -> OUTfloat64[4]\n"+op+"(%7, %8) -> OUTbfloat16[5]\n"+op+"(%9, %10) -> OUTfloat16[5]\n"+op+"(%11, %12) -> OUTfloat32[0,3]\n"+op+"(%2, %2) -> OUTfloat32[]", "OUT", out)}
	}
	for _, op := range []string{"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Rem", "Atan2"} {
		kind := ""
		if op == "Pow" {
			kind = ":positive"
		}
		e := binary(op, kind, "")
		if op == "Atan2" {
			e.params = strings.ReplaceAll(e.params, "bfloat16", "float32")
			e.params = strings.ReplaceAll(e.params, "float16", "float32")
			e.body = strings.ReplaceAll(strings.ReplaceAll(e.body, "bfloat16", "float32"), "float16", "float32")
			e.want = atan2
		}
		cases = append(cases, e)
		if op != "Atan2" && op != "Pow" {
			cases = append(cases, example{name: "edges/" + op, params: "float32[144]:pairs0 float32[144]:pairs1", body: op + "(%0, %1) -> float32[144]"})
		}
	}
	for _, op := range []string{"Add", "Sub", "Mul", "Div", "Max", "Min", "Rem", "Pow"} {
		kind := ":nonzero"
		if op == "Pow" {
			kind = ":index4"
		}
		cases = append(cases, example{name: "integers/" + op, apart: true,
			params: strings.ReplaceAll("int32[2,3]K int32[2,3]K int8[5]K int8[5]K uint8[5]K uint8[5]K int64[4]K int64[4]K uint64[3]K uint64[3]K int32[]K uint32[3]K uint32[3]K int16[3]K int16[3]K uint16[3]K uint16[3]K", "K", kind),
			body: op + "(%0, %1) -> int32[2,3]\n" + op + "(%2, %3) -> int8[5]\n" + op + "(%4, %5) -> uint8[5]\n" + op + "(%6, %7) -> int64[4]\n" + op + "(%8, %9) -> uint64[3]\n" + op + "(%0, %10) -> int32[2,3]\n" +
				op + "(%11, %12) -> uint32[3]\n" + op + "(%13, %14) -> int16[3]\n" + op + "(%15, %16) -> uint16[3]"})
	}
	for _, op := range []string{"Equal", "NotEqual", "GreaterThan", "GreaterOrEqual", "LessThan", "LessOrEqual"} {
		body := op + "(%0, %1) -> bool[144]\n" + op + "(%2, %3) -> bool[9]\n" + op + "(%4, %5) -> bool[9]\n" + op + "(%6, %7) -> bool[9]\n" + op + "(%0, %8) -> bool[144]\n" + op + "(%9, %10) -> bool[2,3]\n" + op + "(%11, %12) -> bool[9]"
		params := "float32[144]:pairs0 float32[144]:pairs1 int8[9]:index3 int8[9]:index3 uint32[9]:bits uint32[9]:bits bfloat16[9]:index3 bfloat16[9]:index3 float32[] float32[2,1]:index3 float32[1,3]:index3 int32[9]:bits int32[9]:bits"
		cases = append(cases, example{name: "compare/" + op, apart: true, params: params, body: body},
			example{name: "compare/" + op + "TotalOrder", params: "float32[144]:pairs0 float32[144]:pairs1", body: op + "TotalOrder(%0, %1) -> bool[144]", want: totalOrder(op)},
			example{name: "compare/" + op + "TotalOrder of integers", params: "int32[9]:index3 int32[9]:index3", body: op + "TotalOrder(%0, %1) -> bool[9]", ref: op + "(%0, %1) -> bool[9]"})
	}
	cases = append(cases, example{name: "compare/bools", params: "bool[8] bool[8]", body: "Equal(%0, %1) -> bool[8]\nNotEqual(%0, %1) -> bool[8]",
		ref: "%2 = LogicalXor(%0, %1) -> bool[8]\n%3 = LogicalNot(%2) -> bool[8]\nreturn %3, %2"})
	cases = append(cases,
		example{name: "where", params: "bool[2,3] float32[2,3] float32[2,3]", body: "Where(%0, %1, %2) -> float32[2,3]"},
		example{name: "where/scalars", apart: true, params: "bool[2,3] float32[2,3] float32[] bool[] float32[]:=2",
			body: "Where(%0, %1, %2) -> float32[2,3]\nWhere(%0, %2, %1) -> float32[2,3]\nWhere(%0, %2, %4) -> float32[2,3]\nWhere(%3, %2, %4) -> float32[]"},
		example{name: "where/other types", apart: true, params: "bool[4] int64[4] int64[4] bfloat16[4] bfloat16[4] bool[4] bool[4]",
			body: "Where(%0, %1, %2) -> int64[4]\nWhere(%0, %3, %4) -> bfloat16[4]\nWhere(%0, %5, %6) -> bool[4]"},
		example{name: "clamp", params: "float32[]:=-1 float32[7] float32[]:=1", body: "Clamp(%0, %1, %2) -> float32[7]", ref: "%10 = Max(%0, %1) -> float32[7]\n%11 = Min(%10, %2) -> float32[7]\nreturn %11"},
		example{name: "clamp/whole", params: "int32[7]:=-3 int32[7] int32[7]:=4", body: "Clamp(%0, %1, %2) -> int32[7]", ref: "%10 = Max(%0, %1) -> int32[7]\n%11 = Min(%10, %2) -> int32[7]\nreturn %11"},
		example{name: "elementwise", params: "float32[2,3] float32[]", body: "Add(%0, %1) -> float32[2,3]\nErf(%2) -> float32[2,3]\nIsNaN(%3) -> bool[2,3]\nGreaterThan(%1, %0) -> bool[2,3]\nIdentity(%0) -> float32[2,3]"},
		example{name: "unsigned", params: "uint32[4] uint8[3]", body: "Abs(%0) -> uint32[4]\nSign(%1) -> uint8[3]", want: func(in []any) []any {
			signs := make([]uint8, 3)
			for i, x := range in[1].([]uint8) {
				signs[i] = min(x, 1)
			}
			return []any{in[0], signs}
		}},
		example{name: "complex", params: "float32[5] float32[5]", body: "%2 = Complex(%0, %1) -> complex64[5]\n%3 = Conj(%2) -> complex64[5]\n%4 = Mul(%2, %2) -> complex64[5]\n%5 = Real(%4) -> float32[5]\n%6 = Imag(%3) -> float32[5]\n%7 = Abs(%2) -> float32[5]\n%8 = Exp(%2) -> complex64[5]\n%9 = Equal(%2, %3) -> bool[5]\nreturn %2, %3, %4, %5, %6, %7, %8, %9", want: complexes},
		example{name: "complex/double", params: "complex128[4] complex128[4]", body: "Add(%0, %1) -> complex128[4]\nMul(%0, %1) -> complex128[4]\nDiv(%0, %1) -> complex128[4]\nReal(%0) -> float64[4]", want: complexDoubles},
	)
	convert := example{name: "convert/all", apart: true, params: "float32[6] float64[6] bfloat16[6] float16[6] int32[6] int8[6] int64[6] uint8[6] uint32[6] bool[6] float32[6]:index200"}
	all := []string{"float32", "float64", "bfloat16", "float16", "int32", "int8", "int64", "uint8", "uint32", "bool"}
	for i, from := range all {
		for _, to := range all {
			if from == to || strings.HasPrefix(to, "u") && i < 7 { // negative numbers have no unsigned counterpart
				continue
			}
			convert.body += fmt.Sprintf("ConvertDType(%%%d) {DType: %s} -> %s[6]\n", i, to, to)
		}
	}
	convert.body += "ConvertDType(%10) {DType: uint8} -> uint8[6]\nConvertDType(%10) {DType: uint64} -> uint64[6]\nConvertDType(%10) {DType: uint16} -> uint16[6]\nConvertDType(%10) {DType: int16} -> int16[6]"
	cases = append(cases, convert,
		example{name: "convert", params: "float32[3]", body: "ConvertDType(%0) {DType: bfloat16} -> bfloat16[3]\nConvertDType(%0) {DType: float32} -> float32[3]"},
		example{name: "convert/float8", params: "float32[8]:index16", body: "%1 = ConvertDType(%0) {DType: F8E4M3FN} -> F8E4M3FN[8]\n%2 = ConvertDType(%1) {DType: float32} -> float32[8]\n%3 = ConvertDType(%0) {DType: F8E5M2} -> F8E5M2[8]\n%4 = ConvertDType(%3) {DType: float32} -> float32[8]\nreturn %2",
			want: func(in []any) []any { return in }},
		example{name: "convert/int4", params: "int32[8]:index7", body: "%1 = ConvertDType(%0) {DType: int4} -> int4[8]\n%2 = ConvertDType(%1) {DType: int32} -> int32[8]\n%3 = ConvertDType(%0) {DType: uint4} -> uint4[8]\n%4 = ConvertDType(%3) {DType: int32} -> int32[8]\nreturn %2, %4",
			want: func(in []any) []any { return []any{in[0], in[0]} }},
		each("edges/converted", "float32[12]:edge float64[12]:edge", "ConvertDType(%s) {DType: bfloat16} -> bfloat16%d"),
		each("edges/converted half", "float32[12]:edge", "ConvertDType(%s) {DType: float16} -> float16%d"),
	)
	return cases
}

func shapeCases() []example {
	return []example{
		{name: "reshape", params: "float32[2,3]", body: "Reshape(%0) {Dimensions: [3, 2]} -> float32[3,2]\nReshape(%0) {Dimensions: [6]} -> float32[6]\nReshape(%0) {Dimensions: [2, 3]} -> float32[2,3]"},
		{name: "reshape/others", apart: true, params: "float32[1] float32[] int8[0,3] bool[2,2]", body: "Reshape(%0) -> float32[]\nReshape(%1) {Dimensions: [1, 1]} -> float32[1,1]\nReshape(%2) {Dimensions: [5, 0]} -> int8[5,0]\nReshape(%3) {Dimensions: [4]} -> bool[4]"},
		{name: "broadcast", params: "float32[3] float32[]", body: "BroadcastInDim(%0) {OutputShape: float32[2,3], BroadcastAxes: [1]} -> float32[2,3]\nBroadcastInDim(%1) {OutputShape: float32[2,3]} -> float32[2,3]"},
		{name: "broadcast/others", apart: true, params: "float32[3,1] int32[2] bool[] float32[0]", body: "BroadcastInDim(%0) {OutputShape: float32[3,4], BroadcastAxes: [0, 1]} -> float32[3,4]\nBroadcastInDim(%1) {OutputShape: int32[2,3,4], BroadcastAxes: [0]} -> int32[2,3,4]\nBroadcastInDim(%2) {OutputShape: bool[3]} -> bool[3]\nBroadcastInDim(%3) {OutputShape: float32[2,0], BroadcastAxes: [1]} -> float32[2,0]"},
		{name: "transpose", params: "float32[2,3,4]", body: "Transpose(%0) {Permutation: [2, 0, 1]} -> float32[4,2,3]"},
		{name: "transpose/others", apart: true, params: "int32[2,3] float32[0,2] float32[]", body: "Transpose(%0) {Permutation: [1, 0]} -> int32[3,2]\nTranspose(%1) {Permutation: [1, 0]} -> float32[2,0]\nTranspose(%2) -> float32[]"},
		{name: "bitcast", apart: true, params: "float32[3] int32[3]:bits uint8[2,4]:bits float64[2] uint16[3,2]:bits", body: "Bitcast(%0) {TargetDType: int32} -> int32[3]\nBitcast(%1) {TargetDType: uint8} -> uint8[3,4]\nBitcast(%2) {TargetDType: uint32} -> uint32[2]\nBitcast(%3) {TargetDType: uint64} -> uint64[2]\nBitcast(%4) {TargetDType: uint32} -> uint32[3]"},
		{name: "iota", body: "Iota() {Shape: int32[2,3], IotaAxis: 1} -> int32[2,3]\nIota() {Shape: float32[4], IotaAxis: 0} -> float32[4]\nIota() {Shape: uint8[2,2], IotaAxis: 0} -> uint8[2,2]\nIota() {Shape: bfloat16[3], IotaAxis: 0} -> bfloat16[3]\nIota() {Shape: int64[0,2], IotaAxis: 1} -> int64[0,2]"},
		{name: "slice", params: "float32[4,5]", body: "Slice(%0) {Starts: [1, 0], Limits: [3, 5], Strides: [1, 2]} -> float32[2,3]\nSlice(%0) {Starts: [0, 2], Limits: [4, 2]} -> float32[4,0]"},
		{name: "slice/others", apart: true, params: "int64[7] bool[6]", body: "Slice(%0) {Starts: [1], Limits: [7], Strides: [3]} -> int64[2]\nSlice(%1) {Starts: [5], Limits: [6]} -> bool[1]"},
		{name: "concatenate", params: "float32[2,3] float32[2,1] float32[2,0]", body: "Concatenate(%0, %1, %2) {Axis: 1} -> float32[2,4]\nConcatenate(%0) {Axis: 0} -> float32[2,3]"},
		{name: "concatenate/others", apart: true, params: "int32[2,3] int32[1,3] bool[2] bool[3]", body: "Concatenate(%0, %1) {Axis: 0} -> int32[3,3]\nConcatenate(%2, %3) {Axis: 0} -> bool[5]"},
		{name: "reverse", params: "float32[2,3] int32[4]", body: "Reverse(%0) {Axes: [1]} -> float32[2,3]\nReverse(%0) {Axes: [0, 1]} -> float32[2,3]\nReverse(%1) {Axes: [0]} -> int32[4]"},
		{name: "pad", params: "float32[2,3] float32[]", body: "Pad(%0, %1) {AxesConfig: [{Start: 1, End: 2, Interior: 0}, {Start: 0, End: 0, Interior: 1}]} -> float32[5,5]"},
		{name: "pad/negative", params: "float32[4,5] float32[]:=0", body: "Pad(%0, %1) {AxesConfig: [{Start: -1, End: 2, Interior: 0}, {Start: 0, End: -2, Interior: 0}]} -> float32[5,3]",
			ref: "%2 = Slice(%0) {Starts: [1, 0], Limits: [4, 3]} -> float32[3,3]\n%3 = Pad(%2, %1) {AxesConfig: [{Start: 0, End: 2, Interior: 0}]} -> float32[5,3]\nreturn %3"},
		{name: "pad/others", apart: true, params: "int32[3] int32[]:=7 float32[0] float32[] bool[2] bool[]", body: "Pad(%0, %1) {AxesConfig: [{Start: 1, End: 1, Interior: 2}]} -> int32[9]\nPad(%2, %3) {AxesConfig: [{Start: 2, End: 1, Interior: 0}]} -> float32[3]\nPad(%4, %5) {AxesConfig: [{Start: 1, End: 0, Interior: 0}]} -> bool[3]\nPad(%3, %3) -> float32[]"},
		{name: "dynamic slice", params: "float32[4,5] int32[]:=1 int32[]:=9", body: "DynamicSlice(%0, %1, %2) {SliceDims: [2, 3]} -> float32[2,3]", ref: "Slice(%0) {Starts: [1, 2], Limits: [3, 5]} -> float32[2,3]"},
		{name: "dynamic slice/vector", params: "float32[4,5] int64[2]:=-3", body: "DynamicSlice(%0, %1) {SliceDims: [4, 2]} -> float32[4,2]", ref: "Slice(%0) {Starts: [0, 0], Limits: [4, 2]} -> float32[4,2]"},
		{name: "dynamic slice/unsigned", params: "int32[5] uint32[]:=2", body: "DynamicSlice(%0, %1) {SliceDims: [2]} -> int32[2]", ref: "Slice(%0) {Starts: [2], Limits: [4]} -> int32[2]"},
		{name: "dynamic update slice", params: "float32[5] float32[2] int32[]:=4", body: "DynamicUpdateSlice(%0, %1, %2) -> float32[5]", ref: "%3 = Slice(%0) {Starts: [0], Limits: [3]} -> float32[3]\n%4 = Concatenate(%3, %1) {Axis: 0} -> float32[5]\nreturn %4"},
		{name: "dynamic update slice/vector", params: "float32[2,3] float32[2,1] int32[2]:=1", body: "DynamicUpdateSlice(%0, %1, %2) -> float32[2,3]", ref: "%3 = Slice(%0) {Starts: [0, 0], Limits: [2, 1]} -> float32[2,1]\n%4 = Slice(%0) {Starts: [0, 2], Limits: [2, 3]} -> float32[2,1]\n%5 = Concatenate(%3, %1, %4) {Axis: 1} -> float32[2,3]\nreturn %5"},
		{name: "constants", body: `Constant() {Value: float32[](1.5)} -> float32[]
Constant() {Value: float32[3](0.1, -0, 16777217)} -> float32[3]
Constant() {Value: float32[2,2](7, 7, 7, 7)} -> float32[2,2]
Constant() {Value: float32[3](+Inf, -Inf, 1e-40)} -> float32[3]
Constant() {Value: float32[1]"AADAfw=="} -> float32[1]
Constant() {Value: bfloat16[3]"gD/AfwAA"} -> bfloat16[3]
Constant() {Value: float64[2](0.1, 1e300)} -> float64[2]
Constant() {Value: int8[3](-128, 127, 0)} -> int8[3]
Constant() {Value: uint64[2](18446744073709551615, 1)} -> uint64[2]
Constant() {Value: int64[2,1](-9223372036854775808, 5)} -> int64[2,1]
Constant() {Value: bool[2,2](true, false, false, true)} -> bool[2,2]
Constant() {Value: float32[0,3]()} -> float32[0,3]
`},
		{name: "constants/long", body: constantsLong()},
	}
}

// constantsLong are constants that are written in hexadecimal.
func constantsLong() string {
	var b strings.Builder
	for _, c := range []struct{ dtype, step string }{{"float32", "0.5"}, {"int32", "-3"}, {"bool", ""}, {"uint8", "5"}} {
		fmt.Fprintf(&b, "Constant() {Value: %s[4,5](", c.dtype)
		for i := range 20 {
			if i > 0 {
				b.WriteString(", ")
			}
			switch c.dtype {
			case "bool":
				fmt.Fprint(&b, i%3 == 0)
			case "float32":
				fmt.Fprint(&b, float64(i)*0.3)
			case "int32":
				fmt.Fprint(&b, i*7-50)
			default:
				fmt.Fprint(&b, i*11)
			}
		}
		fmt.Fprintf(&b, ")} -> %s[4,5]\n", c.dtype)
	}
	return b.String()
}

func reduceCases() (cases []example) {
	for _, op := range []string{"ReduceSum", "ReduceProduct", "ReduceMax", "ReduceMin"} {
		cases = append(cases, example{name: op + "/all", apart: true, tolerance: 2e-5,
			params: "float32[3,4,5] float64[6] bfloat16[3,4] int32[3,4] uint8[5] int64[2,3] float32[] float32[0,3] float32[12]:edge float16[4]",
			body: op + "(%0) {Axes: [1]} -> float32[3,5]\n" + op + "(%0) {Axes: [2, 0]} -> float32[4]\n" + op + "(%0) -> float32[]\n" + op + "(%1) {Axes: [0]} -> float64[]\n" + op + "(%2) {Axes: [1]} -> bfloat16[3]\n" +
				op + "(%3) {Axes: [0]} -> int32[4]\n" + op + "(%4) {Axes: [0]} -> uint8[]\n" + op + "(%5) {Axes: [0, 1]} -> int64[]\n" + op + "(%6) -> float32[]\n" + op + "(%7) {Axes: [0]} -> float32[3]\n" + op + "(%8) {Axes: [0]} -> float32[]\n" + op + "(%9) {Axes: [0]} -> float16[]"})
	}
	cases = append(cases, example{name: "reduce", params: "float32[2,3] bool[3]", body: "ReduceSum(%0) {Axes: [1]} -> float32[2]\nReduceMax(%0) -> float32[]\nReduceLogicalAnd(%1) {Axes: [0]} -> bool[]\nReduceMin(%0) {Axes: [0]} -> float32[3]"})
	for _, op := range []string{"ReduceBitwiseAnd", "ReduceBitwiseOr", "ReduceBitwiseXor"} {
		cases = append(cases, example{name: op + "/all", apart: true, params: "int32[2,3]:bits uint8[4]:bits int64[2]:bits", body: op + "(%0) {Axes: [1]} -> int32[2]\n" + op + "(%1) -> uint8[]\n" + op + "(%2) {Axes: [0]} -> int64[]"})
	}
	for _, op := range []string{"ReduceLogicalAnd", "ReduceLogicalOr", "ReduceLogicalXor"} {
		cases = append(cases, example{name: op + "/all", params: "bool[2,3] bool[4]", body: op + "(%0) {Axes: [0]} -> bool[3]\n" + op + "(%1) -> bool[]"})
	}
	for _, min := range []bool{false, true} {
		a := func(axis int, dtype string) string {
			return fmt.Sprintf(" {Axis: %d, OutputDType: %s, IsMin: %t} -> ", axis, dtype, min)
		}
		cases = append(cases, example{name: fmt.Sprintf("arg/min %t", min), apart: true,
			params: "float32[3,4] int32[9]:index3 float32[12]:edge bfloat16[2,5] uint8[6]:index3 float64[4] float32[2,3]:=-inf float32[40]:nan",
			body:   "ArgMinMax(%0)" + a(1, "int32") + "int32[3]\nArgMinMax(%0)" + a(0, "int64") + "int64[4]\nArgMinMax(%1)" + a(0, "int32") + "int32[]\nArgMinMax(%2)" + a(0, "uint8") + "uint8[]\nArgMinMax(%3)" + a(1, "uint32") + "uint32[2]\nArgMinMax(%4)" + a(0, "int32") + "int32[]\nArgMinMax(%5)" + a(0, "int16") + "int16[]\nArgMinMax(%6)" + a(1, "int32") + "int32[2]\nArgMinMax(%7)" + a(0, "int32") + "int32[]"})
	}
	cases = append(cases, example{name: "arg/first NaN", params: "float32[40]:nans", body: "ArgMinMax(%0) {Axis: 0, OutputDType: int32} -> int32[]\nArgMinMax(%0) {Axis: 0, OutputDType: int32, IsMin: true} -> int32[]",
		want: func([]any) []any { return []any{[]int32{7}, []int32{7}} }})
	cases = append(cases, example{name: "arg", params: "float32[3,4]", body: "ArgMinMax(%0) {Axis: 1, OutputDType: int32} -> int32[3]\nArgMinMax(%0) {Axis: 0, OutputDType: int32, IsMin: true} -> int32[4]"},
		example{name: "cumsum", params: "float32[2,5]", body: "CumSum(%0) {Axis: 1, Options: {Exclusive: false, Reverse: false}} -> float32[2,5]\nCumSum(%0) {Axis: 1, Options: {Exclusive: true, Reverse: true}} -> float32[2,5]"},
		example{name: "cumsum/others", apart: true, params: "int32[6] float32[3,2] float64[4] float32[0,2] float32[300]",
			body: "CumSum(%0) {Axis: 0, Options: {Exclusive: true, Reverse: false}} -> int32[6]\nCumSum(%1) {Axis: 0, Options: {Exclusive: false, Reverse: true}} -> float32[3,2]\nCumSum(%2) {Axis: 0, Options: {Exclusive: false, Reverse: false}} -> float64[4]\nCumSum(%3) {Axis: 0, Options: {Exclusive: false, Reverse: false}} -> float32[0,2]\nCumSum(%4) {Axis: 0, Options: {Exclusive: false, Reverse: false}} -> float32[300]", tolerance: 1e-4},
		example{name: "windows", params: "float32[1,6,6,2]", body: `ReduceWindow(%0) {ReductionType: "Max", WindowDimensions: [1, 2, 2, 1]} -> float32[1,3,3,2]`},
	)
	for _, r := range []string{"Max", "Min", "Sum", "Product"} {
		cases = append(cases, example{name: "windows/" + r, apart: true, params: "float32[1,6,6,2] int32[7] float32[8] bfloat16[4,4]",
			body: fmt.Sprintf(`ReduceWindow(%%0) {ReductionType: %q, WindowDimensions: [1, 3, 3, 1], Strides: [1, 2, 2, 1], Paddings: [[0, 0], [1, 1], [0, 1], [0, 0]]} -> float32[1,3,3,2]
ReduceWindow(%%1) {ReductionType: %q, WindowDimensions: [2], Strides: [1]} -> int32[6]
ReduceWindow(%%2) {ReductionType: %q, WindowDimensions: [2], Strides: [1], WindowDilations: [3]} -> float32[5]
ReduceWindow(%%2) {ReductionType: %q, WindowDimensions: [3], Strides: [2], InputDilations: [2], Paddings: [[2, 1]]} -> float32[8]
ReduceWindow(%%3) {ReductionType: %q, WindowDimensions: [2, 2]} -> bfloat16[2,2]`, r, r, r, r, r)})
	}
	cases = append(cases, example{name: "select and scatter", params: "float32[4,4] float32[2,2]", body: "SelectAndScatterMax(%0, %1) {WindowDimensions: [2, 2], WindowStrides: [2, 2]} -> float32[4,4]"})
	for _, op := range []string{"SelectAndScatterMax", "SelectAndScatterMin"} {
		cases = append(cases, example{name: "select and scatter/" + op, apart: true, params: "float32[4,4] float32[2,2] float32[5] float32[3] float64[6] float64[3]",
			body: op + "(%0, %1) {WindowDimensions: [2, 2], WindowStrides: [2, 2]} -> float32[4,4]\n" + op + "(%2, %3) {WindowDimensions: [3], WindowStrides: [2], Paddings: [[1, 1]]} -> float32[5]\n" + op + "(%4, %5) {WindowDimensions: [2]} -> float64[6]"})
	}
	return cases
}

func dotCases() (cases []example) {
	cases = []example{
		{name: "dot", params: "float32[2,3] float32[3,4]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[2,4]"},
		{name: "dot/batch", params: "float32[5,2,3] float32[5,4,3]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [2], LHSBatchAxes: [0], RHSContractingAxes: [2], RHSBatchAxes: [0]} -> float32[5,2,4]"},
		{name: "dot/batch inside", params: "float32[2,5,3,6] float32[3,4,5,6]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [3], LHSBatchAxes: [1, 2], RHSContractingAxes: [3], RHSBatchAxes: [2, 0]} -> float32[5,3,2,4]"},
		{name: "dot/two contracted", params: "float32[2,3,4] float32[4,3,5]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [1, 2], RHSContractingAxes: [1, 0]} -> float32[2,5]"},
		{name: "dot/outer", params: "float32[3] float32[4]", body: "DotGeneral(%0, %1) -> float32[3,4]"},
		{name: "dot/inner", params: "float32[7] float32[7]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[]"},
		{name: "dot/empty", params: "float32[2,0] float32[0,3]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[2,3]", want: func([]any) []any { return []any{make([]float32, 6)} }},
		{name: "dot/no rows", params: "float32[0,2] float32[2,3]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[0,3]", want: func([]any) []any { return []any{[]float32{}} }},
		{name: "dot/large", params: "float32[64,128] float32[128,96]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[64,96]", tolerance: 5e-5},
		{name: "dot/double", params: "float64[8,16] float64[16,8]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float64[8,8]"},
		{name: "dot/half", params: "bfloat16[8,16] bfloat16[16,8]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> bfloat16[8,8]",
			ref: "%2 = ConvertDType(%0) {DType: float32} -> float32[8,16]\n%3 = ConvertDType(%1) {DType: float32} -> float32[16,8]\n%4 = DotGeneral(%2, %3) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[8,8]\n%5 = ConvertDType(%4) {DType: bfloat16} -> bfloat16[8,8]\nreturn %5"},
		{name: "dot/half to float", params: "bfloat16[8,16] bfloat16[16,8]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0], Config: {AccumulatorDType: float32, OutputDType: float32}} -> float32[8,8]",
			ref: "%2 = ConvertDType(%0) {DType: float32} -> float32[8,16]\n%3 = ConvertDType(%1) {DType: float32} -> float32[16,8]\n%4 = DotGeneral(%2, %3) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[8,8]\nreturn %4"},
		{name: "dot/float16 accumulated", params: "float16[8,16] float16[16,8]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0], Config: {AccumulatorDType: float32, OutputDType: float16}} -> float16[8,8]",
			ref: "%2 = ConvertDType(%0) {DType: float32} -> float32[8,16]\n%3 = ConvertDType(%1) {DType: float32} -> float32[16,8]\n%4 = DotGeneral(%2, %3) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[8,8]\n%5 = ConvertDType(%4) {DType: float16} -> float16[8,8]\nreturn %5"},
		{name: "dot/integers", params: "int32[3,4] int32[4,5]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> int32[3,5]"},
		{name: "dot/small integers", params: "int8[4,8] int8[8,4]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0], Config: {AccumulatorDType: int32, OutputDType: int32}} -> int32[4,4]",
			ref: "%2 = ConvertDType(%0) {DType: int32} -> int32[4,8]\n%3 = ConvertDType(%1) {DType: int32} -> int32[8,4]\n%4 = DotGeneral(%2, %3) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> int32[4,4]\nreturn %4"},
	}
	conv := func(name, params, attrs, out string) {
		cases = append(cases, example{name: name, params: params, body: "ConvGeneral(%0, %1) {Axes: " + attrs + "} -> " + out, tolerance: 5e-5})
	}
	const (
		first = "{InputBatch: 0, InputChannels: 1, InputSpatial: [2, 3], KernelInputChannels: 1, KernelOutputChannels: 0, KernelSpatial: [2, 3], OutputBatch: 0, OutputChannels: 1, OutputSpatial: [2, 3]}"
		last  = "{InputBatch: 0, InputChannels: 3, InputSpatial: [1, 2], KernelInputChannels: 2, KernelOutputChannels: 3, KernelSpatial: [0, 1], OutputBatch: 0, OutputChannels: 3, OutputSpatial: [1, 2]}"
		line  = "{InputBatch: 0, InputChannels: 2, InputSpatial: [1], KernelInputChannels: 1, KernelOutputChannels: 2, KernelSpatial: [0], OutputBatch: 0, OutputChannels: 2, OutputSpatial: [1]}"
		cube  = "{InputBatch: 0, InputChannels: 4, InputSpatial: [1, 2, 3], KernelInputChannels: 3, KernelOutputChannels: 4, KernelSpatial: [0, 1, 2], OutputBatch: 0, OutputChannels: 4, OutputSpatial: [1, 2, 3]}"
	)
	conv("convolution", "float32[2,6,7,3] float32[3,3,3,4]", last, "float32[2,4,5,4]")
	conv("convolution/channels first", "float32[2,3,6,7] float32[4,3,3,2]", first, "float32[2,4,4,6]")
	conv("convolution/strides and padding", "float32[2,6,7,3] float32[3,3,3,4]", last+", Strides: [2, 3], Paddings: [[1, 1], [0, 2]]", "float32[2,3,3,4]")
	conv("convolution/kernel dilation", "float32[1,8,8,2] float32[3,2,2,3]", last+", KernelDilations: [2, 3]", "float32[1,4,5,3]")
	conv("convolution/input dilation", "float32[1,4,4,2] float32[3,3,2,3]", last+", InputDilations: [2, 2], Paddings: [[1, 1], [2, 1]]", "float32[1,7,8,3]")
	conv("convolution/channel groups", "float32[2,5,5,4] float32[3,3,2,6]", last+", ChannelGroupCount: 2", "float32[2,3,3,6]")
	conv("convolution/depthwise", "float32[2,5,5,3] float32[3,3,1,3]", last+", ChannelGroupCount: 3", "float32[2,3,3,3]")
	conv("convolution/batch groups", "float32[4,5,5,3] float32[3,3,3,4]", last+", BatchGroupCount: 2", "float32[2,3,3,4]")
	conv("convolution/line", "float32[2,9,3] float32[4,3,5]", line+", Strides: [2], Paddings: [[1, 2]]", "float32[2,5,5]")
	conv("convolution/cube", "float32[1,4,4,4,2] float32[2,2,2,2,3]", cube, "float32[1,3,3,3,3]")
	conv("convolution/double", "float64[2,6,7,3] float64[3,3,3,4]", last, "float64[2,4,5,4]")
	return cases
}

func gatherCases() (cases []example) {
	cases = []example{
		{name: "gather", params: "float32[5,3] int32[4,1]:index5", body: "Gather(%0, %1) {IndexVectorAxis: 1, OffsetOutputAxes: [1], CollapsedSliceAxes: [0], StartIndexMap: [0], SliceSizes: [1, 3]} -> float32[4,3]"},
		{name: "gather/out of bounds", params: "float32[5,3] int32[6,1]:wild", body: "Gather(%0, %1) {IndexVectorAxis: 1, OffsetOutputAxes: [1], CollapsedSliceAxes: [0], StartIndexMap: [0], SliceSizes: [1, 3]} -> float32[6,3]"},
		{name: "gather/implicit vector", params: "float32[5,3] int64[4]:index5", body: "Gather(%0, %1) {IndexVectorAxis: 1, OffsetOutputAxes: [1], CollapsedSliceAxes: [0], StartIndexMap: [0], SliceSizes: [1, 3]} -> float32[4,3]",
			ref: "%2 = Reshape(%1) {Dimensions: [4, 1]} -> int64[4,1]\n%3 = Gather(%0, %2) {IndexVectorAxis: 1, OffsetOutputAxes: [1], CollapsedSliceAxes: [0], StartIndexMap: [0], SliceSizes: [1, 3]} -> float32[4,3]\nreturn %3"},
		{name: "gather/points", params: "int32[5,4] int32[3,2]:index4", body: "Gather(%0, %1) {IndexVectorAxis: 1, CollapsedSliceAxes: [0, 1], StartIndexMap: [0, 1], SliceSizes: [1, 1]} -> int32[3]"},
		{name: "gather/slices", params: "float32[5,6] int32[2,3,2]:index4", body: "Gather(%0, %1) {IndexVectorAxis: 2, OffsetOutputAxes: [2, 3], StartIndexMap: [1, 0], SliceSizes: [2, 3]} -> float32[2,3,2,3]"},
		{name: "gather/sorted", params: "bfloat16[5,3] int32[1,1]:index5", body: "Gather(%0, %1) {IndexVectorAxis: 1, OffsetOutputAxes: [1], CollapsedSliceAxes: [0], StartIndexMap: [0], SliceSizes: [1, 3], IndicesAreSorted: true} -> bfloat16[1,3]"},
		{name: "gather/one", params: "float32[5,3] int32[1]:index5", body: "Gather(%0, %1) {IndexVectorAxis: 0, OffsetOutputAxes: [0], CollapsedSliceAxes: [0], StartIndexMap: [0], SliceSizes: [1, 3]} -> float32[3]"},
		{name: "gather/none", params: "float32[5,3] int32[0,1]", body: "Gather(%0, %1) {IndexVectorAxis: 1, OffsetOutputAxes: [1], CollapsedSliceAxes: [0], StartIndexMap: [0], SliceSizes: [1, 3]} -> float32[0,3]"},
		{name: "scatter", params: "float32[5,3] int32[4,1]:index5 float32[4,3]", body: "ScatterSum(%0, %1, %2) {IndexVectorAxis: 1, UpdateWindowAxes: [1], InsertedWindowAxes: [0], ScatterAxesToOperandAxes: [0]} -> float32[5,3]"},
	}
	for _, op := range []string{"ScatterSum", "ScatterMax", "ScatterMin"} {
		cases = append(cases,
			example{name: "scatter/" + op, apart: true, params: "float32[5,3] int32[7,1]:index5 float32[7,3] int32[6] int64[4,1]:index6 int32[4] float32[5,4] int32[3,2]:index4 float32[3]",
				body: op + "(%0, %1, %2) {IndexVectorAxis: 1, UpdateWindowAxes: [1], InsertedWindowAxes: [0], ScatterAxesToOperandAxes: [0]} -> float32[5,3]\n" +
					op + "(%3, %4, %5) {IndexVectorAxis: 1, InsertedWindowAxes: [0], ScatterAxesToOperandAxes: [0]} -> int32[6]\n" +
					op + "(%6, %7, %8) {IndexVectorAxis: 1, InsertedWindowAxes: [0, 1], ScatterAxesToOperandAxes: [0, 1]} -> float32[5,4]"},
			example{name: "scatter/" + op + " out of bounds", params: "float32[5] int32[6,1]:wild float32[6]", want: scatterWild(op),
				body: op + "(%0, %1, %2) {IndexVectorAxis: 1, InsertedWindowAxes: [0], ScatterAxesToOperandAxes: [0]} -> float32[5]"},
			example{name: "scatter/" + op + " in half", params: "bfloat16[5,3] int32[2,1]:=2 bfloat16[2,3]",
				body: op + "(%0, %1, %2) {IndexVectorAxis: 1, UpdateWindowAxes: [1], InsertedWindowAxes: [0], ScatterAxesToOperandAxes: [0]} -> bfloat16[5,3]"},
		)
	}
	return cases
}

func controlCases() []example {
	return []example{
		{name: "call", params: "float32[2]", body: `func "twice" {
  %100 = Parameter() {Name: "a", Shape: float32[2]} -> float32[2]
  %101 = Add(%100, %100) -> float32[2]
  return %101
}
Call(%0) [func "twice"] -> float32[2]
Call(%1) [func "twice"] -> float32[2]`},
		{name: "while", params: "float32[2] int32[]:=0 float32[2]", body: `%3 = While(%1, %0) [closure 0 {
    %100 = Parameter() {Name: "i", Shape: int32[]} -> int32[]
    %101 = Parameter() {Name: "x", Shape: float32[2]} -> float32[2]
    %102 = Constant() {Value: int32[](5)} -> int32[]
    %103 = LessThan(%100, %102) -> bool[]
    return %103
  }, closure 1 {
    %110 = Parameter() {Name: "i", Shape: int32[]} -> int32[]
    %111 = Parameter() {Name: "x", Shape: float32[2]} -> float32[2]
    %112 = Constant() {Value: int32[](1)} -> int32[]
    %113 = Add(%110, %112) -> int32[]
    %114 = Add(%111, %2) -> float32[2]
    return %113, %114
  }] -> int32[], float32[2]
return %3, %3.1`},
		{name: "while/never", params: "int32[]:=9", body: `%1 = While(%0) [closure 0 {
    %100 = Parameter() {Name: "i", Shape: int32[]} -> int32[]
    %101 = LessThan(%100, %100) -> bool[]
    return %101
  }, closure 1 {
    %110 = Parameter() {Name: "i", Shape: int32[]} -> int32[]
    return %110
  }] -> int32[]
return %1`},
		{name: "if", params: "bool[] float32[2] float32[2]", body: `%3 = If(%0) [closure 0 {
    %100 = Sub(%1, %2) -> float32[2]
    return %100, %1
  }, closure 1 {
    return %2, %1
  }] -> float32[2], float32[2]
return %3, %3.1`},
		{name: "if/in if", params: "float32[] float32[]", body: `%2 = GreaterThan(%0, %1) -> bool[]
%3 = If(%2) [closure 0 {
    %100 = IsFinite(%0) -> bool[]
    %101 = If(%100) [closure 1 {
      %200 = Add(%0, %1) -> float32[]
      return %200
    }, closure 2 {
      return %1
    }] -> float32[]
    return %101
  }, closure 3 {
    %102 = Mul(%0, %1) -> float32[]
    return %102
  }] -> float32[]
return %3`},
		{name: "while/with if", params: "float32[] int32[]:=0", body: `%2 = While(%1, %0) [closure 0 {
    %100 = Parameter() {Name: "i", Shape: int32[]} -> int32[]
    %101 = Parameter() {Name: "x", Shape: float32[]} -> float32[]
    %102 = Constant() {Value: int32[](4)} -> int32[]
    %103 = LessThan(%100, %102) -> bool[]
    return %103
  }, closure 1 {
    %110 = Parameter() {Name: "i", Shape: int32[]} -> int32[]
    %111 = Parameter() {Name: "x", Shape: float32[]} -> float32[]
    %112 = GreaterThan(%111, %0) -> bool[]
    %113 = If(%112) [closure 2 {
      %200 = Sub(%111, %0) -> float32[]
      return %200
    }, closure 3 {
      %201 = Exp(%111) -> float32[]
      return %201
    }] -> float32[]
    %114 = Constant() {Value: int32[](1)} -> int32[]
    %115 = Add(%110, %114) -> int32[]
    return %115, %113
  }] -> int32[], float32[]
return %2, %2.1`},
		{name: "sort", params: "float32[2,5] int32[2,5]", body: `%2 = Sort(%0, %1) {Axis: 1, IsStable: true} [closure 0 {
    %100 = Parameter() {Name: "a", Shape: float32[]} -> float32[]
    %101 = Parameter() {Name: "b", Shape: float32[]} -> float32[]
    %102 = Parameter() {Name: "c", Shape: int32[]} -> int32[]
    %103 = Parameter() {Name: "d", Shape: int32[]} -> int32[]
    %104 = LessThan(%100, %101) -> bool[]
    return %104
  }] -> float32[2,5], int32[2,5]
return %2, %2.1`},
		{name: "sort/rows", params: "int32[6,2]:index4", body: `%1 = Sort(%0) {Axis: 0, IsStable: false} [closure 0 {
    %100 = Parameter() {Name: "a", Shape: int32[]} -> int32[]
    %101 = Parameter() {Name: "b", Shape: int32[]} -> int32[]
    %102 = GreaterThan(%100, %101) -> bool[]
    return %102
  }] -> int32[6,2]
return %1`},
		{name: "sort/stable ties", params: "int32[9]:index3 float32[9]", body: `%2 = Sort(%0, %1) {Axis: 0, IsStable: true} [closure 0 {
    %100 = Parameter() {Name: "a", Shape: int32[]} -> int32[]
    %101 = Parameter() {Name: "b", Shape: int32[]} -> int32[]
    %102 = Parameter() {Name: "c", Shape: float32[]} -> float32[]
    %103 = Parameter() {Name: "d", Shape: float32[]} -> float32[]
    %104 = LessThan(%100, %101) -> bool[]
    return %104
  }] -> int32[9], float32[9]
return %2, %2.1`},
		{name: "sort/captured", params: "float32[7] float32[]", body: `%2 = Constant() {Value: float32[](0.5)} -> float32[]
%3 = Sort(%0) {Axis: 0, IsStable: true} [closure 0 {
    %100 = Parameter() {Name: "a", Shape: float32[]} -> float32[]
    %101 = Parameter() {Name: "b", Shape: float32[]} -> float32[]
    %102 = Mul(%1, %2) -> float32[]
    %103 = Sub(%100, %102) -> float32[]
    %104 = Sub(%101, %102) -> float32[]
    %105 = Abs(%103) -> float32[]
    %106 = Abs(%104) -> float32[]
    %107 = LessThan(%105, %106) -> bool[]
    return %107
  }] -> float32[7]
%4 = Add(%3, %2) -> float32[7]
%5 = Add(%4, %1) -> float32[7]
return %5`},
		{name: "barriers", params: "float32[2] int32[3] float32[2]:=nan", body: "%3 = OptimizationBarrier(%0, %1) -> float32[2], int32[3]\n%4 = SchedulingBarrier(%0, %2, %1) -> float32[2]\n%5 = SchedulingBarrier(%0) -> float32[2]\nreturn %3, %3.1, %4, %5",
			want: func(in []any) []any { return []any{in[0], in[1], in[0], in[0]} }},
		{name: "all reduce", params: "float32[2] int32[3]", body: `%2 = AllReduce(%0, %1) {ReductionType: "Sum", ReplicaGroups: [[0]]} -> float32[2], int32[3]
return %2, %2.1`, want: func(in []any) []any { return in }},
		{name: "communicate", params: "float32[2,3]", body: `%1 = Communicate(%0) {Groups: [[0]], How: "all-reduce", Reduce: "sum"} -> float32[2,3]
%2 = Communicate(%1) {Dim: 1, Groups: [[0]], How: "all-gather"} -> float32[2,3]
%3 = Communicate(%2) {Groups: [[0]], How: "reduce-scatter", Reduce: "max"} -> float32[2,3]
%4 = Communicate(%3) {Dim: 1, Groups: [[0]], How: "all-to-all"} -> float32[2,3]
return %4`, want: func(in []any) []any { return in }},
	}
}

func specialCases() []example {
	return []example{
		{name: "random", params: "uint64[3]:bits", body: "%1 = RNGBitGenerator(%0) {Shape: uint32[64]} -> uint64[3], uint32[64]\nreturn %1, %1.1"},
		{name: "random/others", apart: true, params: "uint64[3]:bits", body: "RNGBitGenerator(%0) {Shape: uint64[5,7]} -> uint64[3], uint64[5,7]\nRNGBitGenerator(%0) {Shape: uint8[40]} -> uint64[3], uint8[40]\nRNGBitGenerator(%0) {Shape: uint16[40]} -> uint64[3], uint16[40]"},
		{name: "fft", params: "complex64[2,8]", body: `FFT(%0) {FFTType: "Forward", FFTLength: [8]} -> complex64[2,8]
FFT(%0) {FFTType: "Inverse", FFTLength: [8]} -> complex64[2,8]`, want: fourier, tolerance: 1e-4},
		{name: "fft/real", params: "float32[2,8]", body: `%1 = FFT(%0) {FFTType: "ForwardReal", FFTLength: [8]} -> complex64[2,5]
%2 = FFT(%1) {FFTType: "InverseReal", FFTLength: [8]} -> float32[2,8]
return %2`, want: func(in []any) []any { return in }},
		{name: "batch norm", params: "float32[4,3] float32[3] float32[3] float32[3] float32[3]:positive float32[4,3]",
			body: `BatchNormForInference(%0, %1, %2, %3, %4) {Epsilon: 0.001, FeatureAxis: 1} -> float32[4,3]
BatchNormForTraining(%0, %1, %2) {Epsilon: 0.001, FeatureAxis: 1} -> float32[4,3], float32[3], float32[3]
BatchNormGradient(%0, %1, %3, %4, %5) {Epsilon: 0.001, FeatureAxis: -1} -> float32[4,3], float32[3], float32[3]`, want: batchNorms},
	}
}

func fusedCases() (cases []example) {
	cases = []example{
		{name: "softmax", params: "float32[2,3]", body: "FusedSoftmax(%0) {Axis: 1} -> float32[2,3]"},
		{name: "softmax/others", apart: true, params: "float32[2,3,4] float64[5]", body: "FusedSoftmax(%0) {Axis: 1} -> float32[2,3,4]\nFusedSoftmax(%0) {Axis: 0} -> float32[2,3,4]\nFusedSoftmax(%1) {Axis: 0} -> float64[5]"},
		{name: "gelu", params: "float32[2,3]", body: "FusedGelu(%0) {Exact: true} -> float32[2,3]\nFusedGelu(%0) -> float32[2,3]"},
		{name: "gelu/others", apart: true, params: "bfloat16[6] float64[] float16[4] float32[12]:edge", body: "FusedGelu(%0) {Exact: true} -> bfloat16[6]\nFusedGelu(%0) -> bfloat16[6]\nFusedGelu(%1) {Exact: true} -> float64[]\nFusedGelu(%2) -> float16[4]\nFusedGelu(%3) {Exact: true} -> float32[12]"},
		{name: "layer norm", params: "float32[2,6] float32[6] float32[6]", body: "FusedLayerNorm(%0, %1, %2) {Axes: [1], Epsilon: 0.001} -> float32[2,6]"},
		{name: "layer norm/others", apart: true, params: "float32[2,3,4] float32[3,4] float32[2,4] float64[5,2] float32[4,2]",
			body: "FusedLayerNorm(%0, %4, %4) {Axes: [2, 0], Epsilon: 1e-05} -> float32[2,3,4]\nFusedLayerNorm(%0, _, _) {Axes: [2], Epsilon: 1e-05} -> float32[2,3,4]\nFusedLayerNorm(%0, %1, %1) {Axes: [1, 2], Epsilon: 1e-05} -> float32[2,3,4]\nFusedLayerNorm(%0, %2, %2) {Axes: [0, 2], Epsilon: 1e-05} -> float32[2,3,4]\nFusedLayerNorm(%3, _, _) {Axes: [-1], Epsilon: 1e-05} -> float64[5,2]"},
		{name: "dense", params: "float32[2,3] float32[3,4] float32[4]", body: `FusedDense(%0, %1, %2) {Options: {Activation: "gelu", WeightLayout: "InputOutputs"}} -> float32[2,4]`},
		{name: "qkv", params: "float32[5,3] float32[3,8] float32[4] float32[2]", body: "FusedAttentionQKVProjection(%0, %1, %2, _, %3) {QueryDim: 4, KeyValueDim: 2} -> float32[5,4], float32[5,2], float32[5,2]"},
	}
	for _, a := range []string{"none", "gelu", "relu", "silu", "hard_swish", "tanh"} {
		cases = append(cases, example{name: "dense/" + a, apart: true, params: "float32[2,3] float32[3,4] float32[4] float32[4,3] float32[2,5,3] float32[3,2,2] float32[2,2]",
			body: strings.ReplaceAll(`FusedDense(%0, %1, %2) {Options: {Activation: "ACT", WeightLayout: "InputOutputs"}} -> float32[2,4]
FusedDense(%0, %3, _) {Options: {Activation: "ACT", WeightLayout: "OutputsInput"}} -> float32[2,4]
FusedDense(%4, %1, %2) {Options: {Activation: "ACT", WeightLayout: "InputOutputs"}} -> float32[2,5,4]
FusedDense(%0, %5, %6) {Options: {Activation: "ACT", WeightLayout: "InputOutputs"}} -> float32[2,2,2]`, "ACT", a)})
	}
	return cases
}

// attentionCase has the operands query, key, value, the lengths, bias, mask, result, state and the gradient of the result.
type attentionCase struct {
	name, layout, options string
	dtype                 string
	q, k, state           string
	more                  string // of options, as shapes
	in                    string // which operands the options have
}

func attentionCases() (cases []example) {
	for _, c := range []attentionCase{
		{"attention", "BHSD", "", "float32", "[2,2,3,4]", "[2,2,3,4]", "[2,2,3]", "", ""},
		{"attention/positions first", "BSHD", "", "float32", "[2,3,2,4]", "[2,5,2,4]", "[2,2,3]", "", ""},
		{"attention/shared keys", "BHSD", "{Scale: 0.7}", "float32", "[2,4,3,4]", "[2,2,5,4]", "[2,4,3]", "", ", _, _, _, _"},
		{"attention/shared keys, positions first", "BSHD", "{Causal: true}", "float32", "[2,3,4,4]", "[2,3,2,4]", "[2,4,3]", "", ", _, _, _, _"},
		{"attention/bias", "BSHD", "{Causal: true}", "float32", "[2,3,2,4]", "[2,3,2,4]", "[2,2,3]", " float32[1,2,3,3]", ", _, _, %3, _"},
		{"attention/flat bias", "BHSD", "{Scale: 0}", "float64", "[2,2,3,4]", "[2,2,5,4]", "[2,2,3]", " float64[3,5]", ", _, _, %3, _"},
		{"attention/mask", "BHSD", "{Scale: 0}", "float32", "[2,2,3,4]", "[2,2,5,4]", "[2,2,3]", " bool[2,1,3,5]", ", _, _, _, %3"},
		{"attention/mask, positions first", "BSHD", "{Scale: 0}", "float32", "[2,3,2,4]", "[2,5,2,4]", "[2,2,3]", " bool[2,3,2,5]", ", _, _, _, %3"},
		{"attention/added mask", "BHSD", "{Scale: 0}", "float32", "[2,2,3,4]", "[2,2,5,4]", "[2,2,3]", " float32[3,5]", ", _, _, _, %3"},
		{"attention/lengths", "BSHD", "{Causal: true}", "float32", "[2,5,2,4]", "[2,5,2,4]", "[2,2,5]", " int32[2]:lengths int32[2]:lengths", ", %3, %4, _, _"},
		{"attention/half", "BSHD", "", "bfloat16", "[2,3,2,8]", "[2,5,2,8]", "[2,2,3]", "", ""},
	} {
		cases = append(cases, c.example())
	}
	return cases
}

// cudnnCases are attentions that cuDNN has kernels for. Scales keep the scores small: the larger they are, the more bfloat16 rounds gradients.
func cudnnCases() (cases []example) {
	for _, c := range []attentionCase{
		{"cudnn", "BSHD", "{Causal: true}", "bfloat16", "[2,16,4,8]", "[2,16,2,8]", "[2,4,16]", "", ", _, _, _, _"},
		{"cudnn lengths", "BHSD", "{Scale: 0.5}", "float16", "[3,2,16,8]", "[3,2,24,8]", "[3,2,16]", " int32[3]:lengths int32[3]:lengths", ", %3, %4, _, _"},
		{"cudnn/no options", "BSHD", "", "bfloat16", "[2,64,4,64]", "[2,64,4,64]", "[2,4,64]", "", ""},
		{"cudnn/scale", "BSHD", "{Scale: 0.1}", "bfloat16", "[2,128,3,64]", "[2,128,3,64]", "[2,3,128]", "", ", _, _, _, _"},
		{"cudnn/float16", "BHSD", "{Causal: true}", "float16", "[2,3,128,32]", "[2,3,128,32]", "[2,3,128]", "", ", _, _, _, _"},
		{"cudnn/wide heads", "BHSD", "{Scale: 0.1}", "bfloat16", "[1,2,64,128]", "[1,2,64,128]", "[1,2,64]", "", ", _, _, _, _"},
		{"cudnn/shared keys", "BHSD", "{Scale: 0.2}", "float16", "[2,6,48,16]", "[2,2,80,16]", "[2,6,48]", "", ", _, _, _, _"},
		{"cudnn/odd positions", "BSHD", "{Causal: true}", "bfloat16", "[2,37,2,24]", "[2,37,2,24]", "[2,2,37]", "", ", _, _, _, _"},
		{"cudnn bias", "BSHD", "{Scale: 0.2}", "bfloat16", "[2,32,2,16]", "[2,64,2,16]", "[2,2,32]", " bfloat16[1,2,32,64]", ", _, _, %3, _"},
		{"cudnn/bias for all", "BHSD", "{Scale: 0.2}", "bfloat16", "[2,2,32,16]", "[2,2,64,16]", "[2,2,32]", " bfloat16[2,2,32,64]", ", _, _, %3, _"},
		{"cudnn/one bias", "BSHD", "{Causal: true}", "float16", "[2,64,2,16]", "[2,64,2,16]", "[2,2,64]", " float16[2,1,64,64]", ", _, _, %3, _"},
		{"cudnn/lengths", "BSHD", "{Causal: true}", "bfloat16", "[4,64,2,32]", "[4,64,2,32]", "[4,2,64]", " int32[4]:lengths int32[4]:lengths", ", %3, %4, _, _"},
		{"cudnn/lengths of keys", "BSHD", "{Scale: 0.2}", "float16", "[4,32,4,32]", "[4,64,2,32]", "[4,4,32]", " int32[4]:lengths", ", _, %3, _, _"},
	} {
		cases = append(cases, c.example())
	}
	return cases
}

// example: the gradient is computed with the state of forward, then without.
func (c attentionCase) example() example {
	attrs := fmt.Sprintf("{AxesLayout: %q}", c.layout)
	if c.options != "" {
		attrs = fmt.Sprintf("{AxesLayout: %q, Options: %s}", c.layout, c.options)
	}
	t, k := c.dtype+c.q, c.dtype+c.k
	n := 3 + len(strings.Fields(c.more))
	state := "float32" + c.state
	if c.dtype == "float64" {
		state = "float64" + c.state
	}
	body := fmt.Sprintf("%%%d = FusedScaledDotProductAttention(%%0, %%1, %%2%s) %s -> %s, %s\n", n+1, c.in, attrs, t, state)
	body += fmt.Sprintf("%%%d = FusedScaledDotProductAttentionVJP(%%0, %%1, %%2%s, %%%d, %%%d.1, %%%d) %s -> %s, %s, %s\n", n+2, c.in, n+1, n+1, n, attrs, t, k, k)
	body += fmt.Sprintf("%%%d = FusedScaledDotProductAttentionVJP(%%0, %%1, %%2%s, %%%d, %%%d) %s -> %s, %s, %s\n", n+3, c.in, n+1, n, attrs, t, k, k)
	body += fmt.Sprintf("return %%%d, %%%d, %%%d.1, %%%d.2, %%%d, %%%d.1, %%%d.2", n+1, n+2, n+2, n+2, n+3, n+3, n+3)
	e := example{name: c.name, params: strings.Join([]string{t, k, k}, " ") + c.more + " " + t, body: body, tolerance: 2e-5}
	// In half precision the result is rounded, and the gradient subtracts its product with the gradient of the result: that is off by as much
	// as the features together, whoever computes it.
	switch c.dtype {
	case "bfloat16":
		e.tolerance = 5e-2
	case "float16":
		e.tolerance = 1e-2
	}
	e.want = attentionReference(e)
	return e
}
