// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// Kernels of our own are in Triton's language, which XLA compiles with the module. They stand for functions that the IR knows by name; where a
// kernel does not fit, the body of the function is written.

// KernelTarget is what XLA calls a kernel by. It is not part of what XLA promises: a plugin may lack it.
const KernelTarget = "__gpu$xla.gpu.triton"

// kernel writes the call of a function as one of a kernel; nil: there is none for it.
func (w *Writer) kernel(op *ir.Op, in []Value) []Value {
	name := op.Funcs[0].Name
	if !w.options.CUDNN || w.options.NoKernels || !op.Funcs[0].IsKernel() {
		return nil
	}
	dx := op.Outputs[0].Shape
	width := dx.Dimensions[dx.Rank()-1]
	rows, block := dx.Size()/width, width
	if name == ir.GELUGradient { // rows are taken in blocks
		block = min(width&-width, 1024)
	}
	if block < 128 || block > 8192 || block&(block-1) != 0 || dx.Size() >= 1<<31 || dx.DType != dtypes.BFloat16 {
		return nil
	}
	// All programs run at once, on 128 processors or more. Each takes every so many rows, and adds up what is to be summed over rows.
	programs := min(rows, max(1, 1024*block/width))
	part := shapes.Make(dtypes.Float32, programs, width)
	warps := max(1, min(8, block/256))
	k := &ttir{width: width, block: block, rows: rows, programs: programs}
	if epsilon, ok := strings.CutPrefix(name, ir.Norm); ok {
		return w.triton("norm", k.norm(epsilon), programs, warps, in, outputs(op)...)
	}
	var text string
	outs := []shapes.Shape{dx, part}
	if name == ir.NormGradient {
		text = k.normGradient(len(in) > 5, len(op.Outputs) > 3)
		for range op.Outputs[2:] {
			outs = append(outs, part)
		}
	} else {
		text = k.geluGradient()
	}
	out := w.triton(name[len("epl."):], text, programs*(width/block), warps, in, outs...)
	for i := range out[1:] {
		out[1+i] = w.reduce(sum, out[1+i], 0)
	}
	return out
}

// triton calls a kernel, whose parameters are the operands and then the results.
func (w *Writer) triton(name, text string, programs, warps int, in []Value, out ...shapes.Shape) []Value {
	return w.emit("stablehlo.custom_call", in, []string{
		"api_version = 4 : i32",
		fmt.Sprintf("backend_config = {name = %q, ir = %q, num_stages = 2 : i32, num_warps = %d : i32, grid_x = %d : i32, grid_y = 1 : i32, grid_z = 1 : i32, debug = false}",
			name, text, warps, programs),
		`call_target_name = "` + KernelTarget + `"`, boolean("has_side_effect", false),
		layouts("operand_layouts", shapesOf(in), false), layouts("result_layouts", out, false),
	}, nil, out...)
}

// ttir writes a kernel. Its programs take blocks of rows.
type ttir struct {
	strings.Builder
	width, block, rows, programs int
	next                         int
}

// op writes an operation with one result.
func (k *ttir) op(format string, args ...any) string {
	k.next++
	name := fmt.Sprintf("%%t%d", k.next)
	fmt.Fprintf(k, "    %s = %s\n", name, fmt.Sprintf(format, args...))
	return name
}

// row is the type of a block of a row.
func (k *ttir) row(of string) string { return fmt.Sprintf("tensor<%dx%s>", k.block, of) }

// at is where a block is.
func (k *ttir) at(of, pointer, offsets string) string {
	splat := k.op("tt.splat %s : !tt.ptr<%s> -> %s", pointer, of, k.row("!tt.ptr<"+of+">"))
	return k.op("tt.addptr %s, %s : %s, %s", splat, offsets, k.row("!tt.ptr<"+of+">"), k.row("i32"))
}

// load reads a block of bfloat16, as float32.
func (k *ttir) load(pointer, offsets string) string {
	return k.extended(k.op("tt.load %s : %s", k.at("bf16", pointer, offsets), k.row("!tt.ptr<bf16>")))
}

func (k *ttir) extended(x string) string {
	return k.op("arith.extf %s : %s to %s", x, k.row("bf16"), k.row("f32"))
}

// load32 reads a block of float32.
func (k *ttir) load32(pointer, offsets string) string {
	return k.op("tt.load %s : %s", k.at("f32", pointer, offsets), k.row("!tt.ptr<f32>"))
}

// store writes a block of bfloat16, and gives it back as it was rounded.
func (k *ttir) store(pointer, offsets, x string) string {
	rounded := k.op("arith.truncf %s : %s to %s", x, k.row("f32"), k.row("bf16"))
	fmt.Fprintf(k, "    tt.store %s, %s : %s\n", k.at("bf16", pointer, offsets), rounded, k.row("!tt.ptr<bf16>"))
	return k.extended(rounded)
}

// spread reads the number of a row.
func (k *ttir) spread(pointer, row string) string {
	v := k.op("tt.load %s : !tt.ptr<f32>", k.op("tt.addptr %s, %s : !tt.ptr<f32>, i32", pointer, row))
	return k.op("tt.splat %s : f32 -> %s", v, k.row("f32"))
}

func (k *ttir) number(x float64) string {
	return k.op("arith.constant dense<%.9e> : %s", float32(x), k.row("f32"))
}

func (k *ttir) binary(op, x, y string) string {
	return k.op("arith.%s %s, %s : %s", op, x, y, k.row("f32"))
}

func (k *ttir) add(x, y string) string { return k.binary("addf", x, y) }
func (k *ttir) sub(x, y string) string { return k.binary("subf", x, y) }
func (k *ttir) mul(x, y string) string { return k.binary("mulf", x, y) }

// mean is that of a row, in all its places.
func (k *ttir) mean(x, part string) string {
	return k.mul(k.op("tt.splat %s : f32 -> %s", k.sum(x), k.row("f32")), part)
}

// sum is that of a row.
func (k *ttir) sum(x string) string {
	return k.op(`"tt.reduce"(%s) <{axis = 0 : i32}> ({
    ^bb0(%%a: f32, %%b: f32):
      %%s = arith.addf %%a, %%b : f32
      tt.reduce.return %%s : f32
    }) : (%s) -> f32`, x, k.row("f32"))
}

// kernel writes the function around what is done with each row. Its last parameters, as many as there are sums, get what sums of rows each program has.
// before writes what is done once, given the columns of the block. body gets the row, and where the block is; it returns what is to be added up.
func (k *ttir) kernel(name string, params []string, sums []string, before func(columns string), body func(row, here string) []string) string {
	var args []string
	for _, p := range append(params, sums...) {
		name, of, _ := strings.Cut(p, ":")
		args = append(args, fmt.Sprintf("%%%s: !tt.ptr<%s> {tt.divisibility = 16 : i32}", name, of))
	}
	fmt.Fprintf(k, "module {\n  tt.func public @%s(%s) {\n", name, strings.Join(args, ", "))
	fmt.Fprintf(k, "    %%rows = arith.constant %d : i32\n    %%programs = arith.constant %d : i32\n    %%width = arith.constant %d : i32\n", k.rows, k.programs, k.width)
	zero := k.number(0)
	first := k.op("tt.get_program_id x : i32")
	columns := k.op("tt.make_range {end = %d : i32, start = 0 : i32} : %s", k.block, k.row("i32"))
	if k.block < k.width {
		blocks, size := k.op("arith.constant %d : i32", k.width/k.block), k.op("arith.constant %d : i32", k.block)
		start := k.op("arith.muli %s, %s : i32", k.op("arith.remui %s, %s : i32", first, blocks), size)
		columns = k.op("arith.addi %s, %s : %s", columns, k.op("tt.splat %s : i32 -> %s", start, k.row("i32")), k.row("i32"))
		first = k.op("arith.divui %s, %s : i32", first, blocks)
	}
	offsets := func(row string) string {
		return k.op("arith.addi %s, %s : %s", k.op("tt.splat %s : i32 -> %s", k.op("arith.muli %s, %%width : i32", row), k.row("i32")), columns, k.row("i32"))
	}
	before(columns)
	if len(sums) == 0 {
		fmt.Fprintf(k, "    scf.for %%row = %s to %%rows step %%programs : i32 {\n", first)
		body("%row", offsets("%row"))
		k.WriteString("    }\n    tt.return\n  }\n}\n")
		return k.String()
	}
	var inits, types []string
	for i := range sums {
		inits, types = append(inits, fmt.Sprintf("%%sum%d = %s", i, zero)), append(types, k.row("f32"))
	}
	fmt.Fprintf(k, "    %%sums:%d = scf.for %%row = %s to %%rows step %%programs iter_args(%s) -> (%s) : i32 {\n", len(sums), first, strings.Join(inits, ", "), strings.Join(types, ", "))
	terms := body("%row", offsets("%row"))
	for i, x := range terms {
		terms[i] = k.add(fmt.Sprintf("%%sum%d", i), x)
	}
	fmt.Fprintf(k, "    scf.yield %s : %s\n    }\n", strings.Join(terms, ", "), strings.Join(types, ", "))
	mine := offsets(first)
	for i, p := range sums {
		name, _, _ := strings.Cut(p, ":")
		fmt.Fprintf(k, "    tt.store %s, %%sums#%d : %s\n", k.at("f32", "%"+name, mine), i, k.row("!tt.ptr<f32>"))
	}
	k.WriteString("    tt.return\n  }\n}\n")
	return k.String()
}

// norm is the kernel of [ir.Norm]. A row is in registers: so the variance is taken of what is centred.
func (k *ttir) norm(epsilon string) string {
	var gain, offset, part, least string
	number := func(x float64) string { return k.op("arith.constant %.9e : f32", float32(x)) }
	return k.kernel("norm", []string{"x:bf16", "gain:f32", "offset:f32", "y:bf16", "mu:f32", "sigma:f32"}, nil, func(columns string) {
		gain, offset, part = k.load32("%gain", columns), k.load32("%offset", columns), number(1/float64(k.width))
		value, err := strconv.ParseFloat(epsilon, 32)
		if err != nil {
			refuse("%v", err)
		}
		least = number(value)
	}, func(row, here string) []string {
		keep := func(pointer, x string) {
			fmt.Fprintf(k, "    tt.store %s, %s : !tt.ptr<f32>\n", k.op("tt.addptr %s, %s : !tt.ptr<f32>, i32", pointer, row), x)
		}
		spread := func(x string) string { return k.op("tt.splat %s : f32 -> %s", x, k.row("f32")) }
		x := k.load("%x", here)
		mu := k.op("arith.mulf %s, %s : f32", k.sum(x), part)
		centred := k.sub(x, spread(mu))
		variance := k.op("arith.mulf %s, %s : f32", k.sum(k.mul(centred, centred)), part)
		sigma := k.op("math.sqrt %s : f32", k.op("arith.addf %s, %s : f32", variance, least))
		keep("%mu", mu)
		keep("%sigma", sigma)
		y := k.binary("divf", centred, spread(sigma))
		k.store("%y", here, k.add(k.mul(y, gain), offset))
		return nil
	})
}

// normGradient is the kernel of [ir.NormGradient].
func (k *ttir) normGradient(added, summed bool) string {
	params, sums := []string{"dy:bf16", "x:bf16", "mu:f32", "inverse:f32", "gain:f32"}, []string{"gains:f32", "offsets:f32"}
	if added {
		params = append(params, "added:bf16")
	}
	if summed {
		sums = append(sums, "total:f32")
	}
	var gain, part string
	return k.kernel("norm_gradient", append(params, "dx:bf16"), sums, func(columns string) {
		gain, part = k.load32("%gain", columns), k.number(1/float64(k.width))
	}, func(row, here string) []string {
		dy, x := k.load("%dy", here), k.load("%x", here)
		inverse := k.spread("%inverse", row)
		y := k.mul(k.sub(x, k.spread("%mu", row)), inverse)
		g := k.mul(k.mul(dy, inverse), gain)
		dx := k.sub(k.sub(g, k.mean(g, part)), k.mul(y, k.mean(k.mul(g, y), part)))
		if added {
			dx = k.add(dx, k.load("%added", here))
		}
		terms := []string{k.mul(dy, y), dy}
		if rounded := k.store("%dx", here, dx); summed {
			terms = append(terms, rounded)
		}
		return terms
	})
}

// geluGradient is the kernel of [ir.GELUGradient]: dy·(Φ + x·Φ'), where Φ is a sigmoid.
func (k *ttir) geluGradient() string {
	const g0, g1, g2, g3 = 1.595016, 0.0740113, 0.00070304, 36.
	n := map[float64]string{}
	var bias string
	return k.kernel("gelu_gradient", []string{"dy:bf16", "x:bf16", "bias:f32", "dx:bf16"}, []string{"total:f32"}, func(columns string) {
		bias = k.load32("%bias", columns)
		for _, x := range []float64{1, g0, g1, g2, g3, 3 * g1, 5 * g2} {
			n[x] = k.number(x)
		}
	}, func(_, here string) []string {
		dy, x := k.load("%dy", here), k.add(k.load("%x", here), bias)
		z := k.binary("minimumf", k.mul(x, x), n[g3])
		u := k.mul(x, k.add(k.mul(z, k.sub(n[g1], k.mul(z, n[g2]))), n[g0]))
		exp := k.op("math.exp %s : %s", k.sub(k.op("arith.constant dense<0.000000e+00> : %s", k.row("f32")), u), k.row("f32"))
		phi := k.binary("divf", n[1], k.add(n[1], exp))
		slope := k.add(k.mul(z, k.sub(n[3*g1], k.mul(z, n[5*g2]))), n[g0])
		d := k.mul(k.mul(phi, k.sub(n[1], phi)), slope)
		return []string{k.store("%dx", here, k.mul(dy, k.add(phi, k.mul(x, d))))}
	})
}
