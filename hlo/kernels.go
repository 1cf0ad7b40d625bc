package hlo

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// Kernels of our own are in Triton's language, which XLA compiles with the module. They stand for functions that the IR knows by name; where a
// kernel does not fit, the body of the function is written.

// kernel writes the call of a function as one of a kernel; nil: there is none for it.
func (w *Writer) kernel(op *ir.Op, in []Value) []Value {
	if !w.options.CUDNN || op.Funcs[0].Name != ir.NormGradient {
		return nil
	}
	dx := op.Outputs[0].Shape
	width := dx.Dimensions[dx.Rank()-1]
	rows := dx.Size() / width
	if width < 128 || width > 8192 || width&(width-1) != 0 || dx.Size() >= 1<<31 || dx.DType != dtypes.BFloat16 {
		return nil
	}
	programs := min(rows, 1024) // all run at once on 128 processors or more; each takes every 1024th row, and adds up what is to be summed over rows
	part := shapes.Make(dtypes.Float32, programs, width)
	warps := max(1, min(8, width/256))
	out := w.triton("norm_gradient", normGradient(rows, width, programs, len(in) > 5), programs, warps, in, dx, part, part)
	return []Value{out[0], w.reduce(sum, out[1], 0), w.reduce(sum, out[2], 0)}
}

// triton calls a kernel, whose parameters are the operands and then the results.
func (w *Writer) triton(name, text string, programs, warps int, in []Value, out ...shapes.Shape) []Value {
	return w.emit("stablehlo.custom_call", in, []string{
		"api_version = 4 : i32",
		fmt.Sprintf("backend_config = {name = %q, ir = %q, num_stages = 2 : i32, num_warps = %d : i32, grid_x = %d : i32, grid_y = 1 : i32, grid_z = 1 : i32, debug = false}",
			name, text, warps, programs),
		`call_target_name = "__gpu$xla.gpu.triton"`, boolean("has_side_effect", false),
		layouts("operand_layouts", shapesOf(in), false), layouts("result_layouts", out, false),
	}, nil, out...)
}

// ttir writes a kernel.
type ttir struct {
	strings.Builder
	width int
	next  int
}

// op writes an operation with one result.
func (k *ttir) op(format string, args ...any) string {
	k.next++
	name := fmt.Sprintf("%%t%d", k.next)
	fmt.Fprintf(k, "      %s = %s\n", name, fmt.Sprintf(format, args...))
	return name
}

// row is the type of a row.
func (k *ttir) row(of string) string { return fmt.Sprintf("tensor<%dx%s>", k.width, of) }

// at is where a row starts at an offset.
func (k *ttir) at(of, pointer, offsets string) string {
	splat := k.op("tt.splat %s : !tt.ptr<%s> -> %s", pointer, of, k.row("!tt.ptr<"+of+">"))
	return k.op("tt.addptr %s, %s : %s, %s", splat, offsets, k.row("!tt.ptr<"+of+">"), k.row("i32"))
}

// load reads a row of bfloat16, as float32.
func (k *ttir) load(pointer, offsets string) string {
	v := k.op("tt.load %s : %s", k.at("bf16", pointer, offsets), k.row("!tt.ptr<bf16>"))
	return k.op("arith.extf %s : %s to %s", v, k.row("bf16"), k.row("f32"))
}

// spread reads the number of a row.
func (k *ttir) spread(pointer, row string) string {
	v := k.op("tt.load %s : !tt.ptr<f32>", k.op("tt.addptr %s, %s : !tt.ptr<f32>, i32", pointer, row))
	return k.op("tt.splat %s : f32 -> %s", v, k.row("f32"))
}

func (k *ttir) binary(op, x, y string) string {
	return k.op("arith.%s %s, %s : %s", op, x, y, k.row("f32"))
}

// mean is that of a row, in all its places.
func (k *ttir) mean(x string) string {
	sum := k.op(`"tt.reduce"(%s) <{axis = 0 : i32}> ({
      ^bb0(%%a: f32, %%b: f32):
        %%s = arith.addf %%a, %%b : f32
        tt.reduce.return %%s : f32
      }) : (%s) -> f32`, x, k.row("f32"))
	return k.binary("mulf", k.op("tt.splat %s : f32 -> %s", sum, k.row("f32")), "%part")
}

// normGradient is the kernel of [ir.NormGradient]. What is summed over rows comes out as one sum for each program.
func normGradient(rows, width, programs int, added bool) string {
	k := &ttir{width: width}
	arg := func(name, of string) string {
		return fmt.Sprintf("%%%s: !tt.ptr<%s> {tt.divisibility = 16 : i32}", name, of)
	}
	args := []string{arg("dy", "bf16"), arg("x", "bf16"), arg("mu", "f32"), arg("inverse", "f32"), arg("gain", "f32")}
	if added {
		args = append(args, arg("added", "bf16"))
	}
	args = append(args, arg("dx", "bf16"), arg("gains", "f32"), arg("offsets", "f32"))
	f32 := k.row("f32")
	fmt.Fprintf(k, "module {\n  tt.func public @norm_gradient(%s) {\n", strings.Join(args, ", "))
	fmt.Fprintf(k, "      %%zero = arith.constant dense<0.000000e+00> : %s\n      %%part = arith.constant dense<%s> : %s\n", f32, decimal(1/float64(width), 32), f32)
	fmt.Fprintf(k, "      %%rows = arith.constant %d : i32\n      %%programs = arith.constant %d : i32\n      %%width = arith.constant %d : i32\n", rows, programs, width)
	pid := k.op("tt.get_program_id x : i32")
	columns := k.op("tt.make_range {end = %d : i32, start = 0 : i32} : %s", width, k.row("i32"))
	offsets := func(row string) string {
		return k.op("arith.addi %s, %s : %s", k.op("tt.splat %s : i32 -> %s", k.op("arith.muli %s, %%width : i32", row), k.row("i32")), columns, k.row("i32"))
	}
	gain := k.op("tt.load %s : %s", k.at("f32", "%gain", columns), k.row("!tt.ptr<f32>"))
	fmt.Fprintf(k, "      %%sums:2 = scf.for %%row = %s to %%rows step %%programs iter_args(%%g = %%zero, %%o = %%zero) -> (%s, %s) : i32 {\n", pid, f32, f32)
	here := offsets("%row")
	dy, x := k.load("%dy", here), k.load("%x", here)
	inverse := k.spread("%inverse", "%row")
	y := k.binary("mulf", k.binary("subf", x, k.spread("%mu", "%row")), inverse)
	g := k.binary("mulf", k.binary("mulf", dy, inverse), gain)
	dx := k.binary("subf", k.binary("subf", g, k.mean(g)), k.binary("mulf", y, k.mean(k.binary("mulf", g, y))))
	if added {
		dx = k.binary("addf", dx, k.load("%added", here))
	}
	rounded := k.op("arith.truncf %s : %s to %s", dx, f32, k.row("bf16"))
	fmt.Fprintf(k, "      tt.store %s, %s : %s\n", k.at("bf16", "%dx", here), rounded, k.row("!tt.ptr<bf16>"))
	gains, sums := k.binary("addf", "%g", k.binary("mulf", dy, y)), k.binary("addf", "%o", dy)
	fmt.Fprintf(k, "      scf.yield %s, %s : %s, %s\n      }\n", gains, sums, f32, f32)
	mine := offsets(pid)
	for i, to := range []string{"%gains", "%offsets"} {
		fmt.Fprintf(k, "      tt.store %s, %%sums#%d : %s\n", k.at("f32", to, mine), i, k.row("!tt.ptr<f32>"))
	}
	k.WriteString("      tt.return\n  }\n}\n")
	return k.String()
}
