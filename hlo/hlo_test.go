// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo_test

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"
	"golang.org/x/tools/txtar"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec/lower"
	"github.com/easyparallel/epl/hlo"
	"github.com/easyparallel/epl/ir"
)

var update = flag.Bool("update", false, "rewrite the modules in testdata")

func module(t *testing.T, s *ir.Segment, o hlo.Options) string {
	t.Helper()
	text, err := hlo.Module(s, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := structure(text, s); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	return text
}

// golden compares with a file of an archive, or rewrites it.
func golden(t *testing.T, file string, got *txtar.Archive) {
	t.Helper()
	path := filepath.Join("testdata", file+".txt")
	if *update {
		if err := os.WriteFile(path, txtar.Format(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(want.Files, got.Files) {
		t.Errorf("%s: run with -update if this is right:\n%s", file, txtar.Format(got))
	}
}

// Every family has a file with programs and their modules.
func TestModulesOfEachFamily(t *testing.T) {
	for family, cases := range families {
		t.Run(family, func(t *testing.T) {
			a := &txtar.Archive{}
			for _, e := range cases {
				p := e.program(t, e.body)
				text := module(t, emit.Whole(p), hlo.Options{})
				if again := module(t, emit.Whole(e.program(t, e.body)), hlo.Options{}); again != text {
					t.Errorf("%s: the same program gives another text", e.name)
				}
				if !strings.Contains(e.name, "/") {
					a.Files = append(a.Files, txtar.File{Name: e.name, Data: []byte(p.String())}, txtar.File{Name: e.name + ", module", Data: []byte(text)})
				}
			}
			golden(t, family, a)
		})
	}
}

// Attention that cuDNN has is a call of it; the rest, and all of it without the option, is the definition.
func TestAttentionByCUDNN(t *testing.T) {
	a := &txtar.Archive{}
	for _, e := range cudnnCases() {
		p := e.program(t, e.body)
		text := module(t, emit.Whole(p), hlo.Options{CUDNN: true})
		if forward, backward := strings.Count(text, `Softmax"`), strings.Count(text, `SoftmaxBackward"`); forward != 1 || backward != 1 {
			t.Errorf("%s: %d calls forward and %d backward:\n%s", e.name, forward, backward, text)
		}
		if strings.Contains(module(t, emit.Whole(p), hlo.Options{}), "custom_call") {
			t.Errorf("%s: cuDNN is called without being asked for", e.name)
		}
		if !strings.Contains(e.name, "/") {
			a.Files = append(a.Files, txtar.File{Name: e.name, Data: []byte(p.String())}, txtar.File{Name: e.name + ", module", Data: []byte(text)})
		}
	}
	golden(t, "cudnn", a)
	without := attentionCases()
	for _, c := range []attentionCase{
		{"features", "BHSD", "", "bfloat16", "[2,2,16,12]", "[2,2,16,12]", "[2,2,16]", "", ""},
		{"many features", "BHSD", "", "bfloat16", "[2,2,16,136]", "[2,2,16,136]", "[2,2,16]", "", ""},
		{"causal", "BHSD", "{Causal: true}", "bfloat16", "[2,2,16,8]", "[2,2,24,8]", "[2,2,16]", "", ", _, _, _, _"},
		{"mask", "BHSD", "{Scale: 1}", "bfloat16", "[2,2,16,8]", "[2,2,16,8]", "[2,2,16]", " bool[16,16]", ", _, _, _, %3"},
		{"bias in float32", "BHSD", "{Scale: 1}", "bfloat16", "[2,2,16,8]", "[2,2,16,8]", "[2,2,16]", " float32[2,2,16,16]", ", _, _, %3, _"},
		{"flat bias", "BHSD", "{Scale: 1}", "bfloat16", "[2,2,16,8]", "[2,2,16,8]", "[2,2,16]", " bfloat16[16,16]", ", _, _, %3, _"},
		{"odd bias", "BHSD", "{Scale: 1}", "bfloat16", "[2,2,15,8]", "[2,2,16,8]", "[2,2,15]", " bfloat16[2,2,15,16]", ", _, _, %3, _"},
		{"bias and lengths", "BHSD", "{Scale: 1}", "bfloat16", "[2,2,16,8]", "[2,2,16,8]", "[2,2,16]", " int32[2] bfloat16[2,2,16,16]", ", _, %3, %4, _"},
	} {
		without = append(without, c.example())
	}
	for _, e := range without {
		s := emit.Whole(e.program(t, e.body))
		if e.name != "attention/half" && module(t, s, hlo.Options{CUDNN: true}) != module(t, s, hlo.Options{}) {
			t.Errorf("%s: cuDNN has no such attention", e.name)
		}
	}
}

// The reference of every case can be computed here, so that a run on a device is not wasted.
func TestEveryCaseHasAReference(t *testing.T) {
	for _, family := range slices.Sorted(maps.Keys(families)) {
		for _, e := range families[family] {
			if strings.HasPrefix(e.name, "random") {
				continue
			}
			p := e.program(t, e.body)
			r := p
			if e.ref != "" {
				r = e.program(t, e.ref)
			}
			out, err := e.expected(r, inputs(e, p))
			if err != nil {
				t.Errorf("%s: %s: %v", family, e.name, err)
				continue
			}
			if len(out) != len(p.Main.Outputs) {
				t.Errorf("%s: %s: %d outputs, not %d", family, e.name, len(out), len(p.Main.Outputs))
				continue
			}
			for i, o := range out {
				if d := differences(o, o, 0); d != "" || reflect.TypeOf(o) != reflect.TypeOf(emptyOf(p.Main.Outputs[i])) || reflect.ValueOf(o).Len() != p.Main.Outputs[i].Shape.Size() {
					t.Errorf("%s: %s: output %d is %T of %d, of %s: %s", family, e.name, i, o, reflect.ValueOf(o).Len(), p.Main.Outputs[i].Shape, d)
				}
			}
		}
	}
}

// Every operation of the IR is either written, in some case, or refused by name.
func TestEveryOperationIsWrittenOrRefused(t *testing.T) {
	written := map[ir.OpType]bool{}
	var see func(ops []*ir.Op)
	see = func(ops []*ir.Op) {
		for _, op := range ops {
			written[op.Type()] = true
			for _, f := range op.Funcs {
				see(f.Ops)
			}
		}
	}
	for _, cases := range families {
		for _, e := range cases {
			see(emit.Whole(e.program(t, e.body)).Ops)
		}
	}
	delete(written, ir.OpParameter)
	var refused []ir.OpType
	for _, typ := range ir.OpTypes() {
		if reason := hlo.Refused[typ]; reason != "" {
			refused = append(refused, typ)
			if written[typ] {
				t.Errorf("%s is refused, and written", typ)
			}
		} else if !written[typ] {
			t.Errorf("%s has no case, and is not refused", typ)
		}
	}
	if want := 16; len(refused) != want {
		t.Errorf("%d operations are refused, not %d: %q", len(refused), want, refused)
	}
}

func TestARefusalNamesOperationAndReason(t *testing.T) {
	for _, c := range []struct{ params, body, want string }{
		{"float32[2]", `DynamicShape(%0) -> int32[1]`, "DynamicShape %1: XLA has no shapes known only at run time"},
		{"uint8[2,18] int32[1]", `QuantizedEmbeddingLookup(%0, %1) -> float32[1,32]`, "QuantizedEmbeddingLookup %2: there is no text for quantised values"},
		{"float32[2,2,3,4] bool[2,3,3]", `FusedScaledDotProductAttention(%0, %0, %0, _, _, _, %1) {AxesLayout: "BHSD", Options: {Scale: 1}} -> float32[2,2,3,4]`, "the first dim of a mask of rank 3"},
		{"float32[2] int32[3]", "%2 = Sort(%0) {Axis: 0} [closure 0 {\n  %9 = Parameter() {Name: \"a\", Shape: float32[]} -> float32[]\n  %10 = Parameter() {Name: \"b\", Shape: float32[]} -> float32[]\n  %11 = ReduceSum(%1) -> int32[]\n  %12 = LessThan(%9, %10) -> bool[]\n  return %12\n}] -> float32[2]\nreturn %2", "Sort %2: its comparison uses %1, which is not a number"},
		{"float32[2]", `Slice(%0) {Starts: [0], Limits: [1]} -> float32[2]`, "Slice %1: %1 is tensor<1xf32> in the text, not tensor<2xf32>"},
		{"float32[2,3]", `Transpose(%0) {Permutation: [1, 4]} -> float32[3,2]`, "Transpose %1: "},
		{"float32[2]", `ConvertDType(%0) {DType: int1} -> int1[2]`, "XLA has no Int1"},
	} {
		e := example{name: "refused", params: c.params, body: c.body}
		_, err := hlo.Module(emit.Whole(e.program(t, e.body)), hlo.Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `segment "refused"`) {
			t.Errorf("%s: %v, not %q", c.body, err, c.want)
		}
	}
}

func TestInputsGiveTheirMemoryAway(t *testing.T) {
	e := example{name: "donated", params: "float32[2] float32[2] float32[3]", body: "Add(%0, %1) -> float32[2]\nNeg(%2) -> float32[3]"}
	s := emit.Whole(e.program(t, e.body))
	text := module(t, s, hlo.Options{Name: "my step: 1", Replicas: 4, Alias: map[int]int{2: 1, 0: 0}, Donor: []bool{true, true}})
	for _, want := range []string{
		"module @m_my_step_1 attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 4 : i32} {",
		"(%v0: tensor<2xf32> {tf.aliasing_output = 0 : i32}, %v1: tensor<2xf32> {jax.buffer_donor = true}, %v2: tensor<3xf32> {tf.aliasing_output = 1 : i32})",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, alias := range []map[int]int{{0: 1}, {0: 2}, {0: -1}, {0: 0, 1: 0}} {
		if _, err := hlo.Module(s, hlo.Options{Alias: alias}); err == nil {
			t.Errorf("the alias %v is taken", alias)
		}
	}
}

// Constants of Go's int are int64, those of packed types two in a byte, and NaN keeps its bits.
func TestConstantsAreExact(t *testing.T) {
	for want, l := range map[string]ir.Literal{
		"dense<[5, -7]> : tensor<2xi64>":                                    {Shape: shapes.Make(dtypes.Int64, 2), Flat: []int{5, -7}},
		"dense<[-8, 7, 1]> : tensor<3xi4>":                                  {Shape: shapes.Make(dtypes.Int4, 3), Flat: []uint8{0x78, 0x01}},
		"dense<[3, 0, 1, 2]> : tensor<4xui2>":                               {Shape: shapes.Make(dtypes.Uint2, 4), Flat: []uint8{0b10_01_00_11}},
		"dense<0xFFC00001> : tensor<f32>":                                   {Shape: shapes.Make(dtypes.Float32), Flat: []float32{math.Float32frombits(0xFFC00001)}},
		"dense<(1.5, -2.0)> : tensor<complex<f32>>":                         {Shape: shapes.Make(dtypes.Complex64), Flat: []complex64{1.5 - 2i}},
		"dense<[0.1, 1.0e-300]> : tensor<2xf64>":                            {Shape: shapes.Make(dtypes.Float64, 2), Flat: []float64{0.1, 1e-300}},
		"dense<[[true], [false]]> : tensor<2x1xi1>":                         {Shape: shapes.Make(dtypes.Bool, 2, 1), Flat: []bool{true, false}},
		"dense<0x7C00> : tensor<4xf16>":                                     {Shape: shapes.Make(dtypes.Float16, 4), Flat: slices.Repeat([]float16.Float16{float16.Inf(1)}, 4)},
		`dense<"0x` + strings.Repeat("00000100", 9) + `"> : tensor<18xi16>`: {Shape: shapes.Make(dtypes.Int16, 18), Flat: slices.Repeat([]int16{0, 1}, 9)},
	} {
		p := ir.NewProgram("constant")
		p.Main.Append(p.NewOp(&ir.Constant{Value: l}, nil, l.Shape))
		p.Main.Outputs = p.Main.Ops[0].Outputs
		if text := module(t, emit.Whole(p), hlo.Options{}); !strings.Contains(text, "{value = "+want+"}") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestTF32IsAskedFor(t *testing.T) {
	e := example{name: "dot", params: "float32[2,3] float32[3,4]", body: "DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[2,4]"}
	s := emit.Whole(e.program(t, e.body))
	if text := module(t, s, hlo.Options{TF32: true}); strings.Contains(text, "HIGHEST") {
		t.Errorf("full precision:\n%s", text)
	}
	if text := module(t, s, hlo.Options{}); !strings.Contains(text, "precision HIGHEST") {
		t.Errorf("not full precision:\n%s", text)
	}
}

// Extra writes what the package refuses: here merges, by all collectives.
func TestCollectives(t *testing.T) {
	e := example{name: "collectives", params: "float32[4,8]", body: ""}
	p := e.program(t, "Add(%0, %0) -> float32[4,8]")
	x := p.Main.Outputs[0]
	merge := p.NewOp(&ir.Merge{How: ir.Mean}, []*ir.Value{x}, x.Shape)
	p.Main.Append(merge)
	s := emit.Whole(p)
	s.Outputs = merge.Outputs
	if _, err := hlo.Module(s, hlo.Options{}); err == nil || !strings.Contains(err.Error(), "merged between segments") {
		t.Errorf("without help: %v", err)
	}
	halves := [][]int{{0, 1}, {2, 3}}
	text := module(t, s, hlo.Options{Replicas: 4, Extra: func(w *hlo.Writer, op *ir.Op, in []hlo.Value) []hlo.Value {
		y := w.AllReduce(in[0], compute.ReduceOpSum, nil)
		y = w.AllReduce(y, compute.ReduceOpMax, [][]int{{0, 1, 2}, {3}})
		y = w.AllGather(y, 1, halves)
		y = w.ReduceScatter(y, compute.ReduceOpSum, 0, halves)
		y = w.AllToAll(y, 1, 0, halves)
		w.ReplicaID()
		return []hlo.Value{w.CollectivePermute(y, [][2]int{{0, 1}, {1, 0}, {2, 3}, {3, 2}})}
	}})
	golden(t, "collectives", &txtar.Archive{Files: []txtar.File{{Name: "module", Data: []byte(text)}}})
	for name, f := range map[string]func(*hlo.Writer, hlo.Value){
		"5 rows do not divide":  func(w *hlo.Writer, x hlo.Value) { w.ReduceScatter(x, compute.ReduceOpSum, 0, [][]int{{0, 1, 2}}) },
		"are not of one size":   func(w *hlo.Writer, x hlo.Value) { w.AllGather(x, 0, [][]int{{0, 1}, {2}}) },
		"there is no reduction": func(w *hlo.Writer, x hlo.Value) { w.AllReduce(x, compute.ReduceOpUndefined, nil) },
	} {
		_, err := hlo.Module(s, hlo.Options{Replicas: 4, Extra: func(w *hlo.Writer, op *ir.Op, in []hlo.Value) []hlo.Value {
			f(w, in[0])
			return in
		}})
		if name = strings.Replace(name, "5", "4", 1); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, not %q", err, name)
		}
	}
}

// What exec/lower makes for a device can be written: its position is an input, and a local change of placement a slice.
func TestALoweredSegmentIsWritten(t *testing.T) {
	p, err := ir.Parse(`program "spmd"
taskgraph 0 "all" split(2)
stage taskgraph 0 place 0 place 1
input %0
main {
  %0 = Parameter() {Name: "x", Shape: float32[4,6]} -> float32[4,6] : forward
  %1 = Position() {Axis: "model"} -> int32[] on model of 2 each : forward
  %2 = Reshard(%0, %1) -> float32[4,6] on model of 2 sharded(0) : forward taskgraph 0
  %3 = Tanh(%2) -> float32[4,6] on model of 2 sharded(0) : forward taskgraph 0
  return %3
}
`)
	if err == nil {
		err = p.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := lower.Lower(ir.Cut(p.Main, "piece", func(*ir.Op) bool { return true }, p.Main.Outputs), nil)
	text := module(t, s, hlo.Options{Replicas: 2})
	for _, want := range []string{"tensor<i32>", `"stablehlo.tanh"(`, "-> (tensor<2x6xf32>) {"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Programs of other packages' tests, recorded ones among them, give a module or an error that names an op.
func TestProgramsOfOtherTests(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../ir/testdata/*.txt", "../passes/testdata/*.txt", "../passes/testdata/*/*.txt", "../*/testdata/*.txt"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	modules, refusals := 0, 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts := []string{string(data)}
		for _, f := range txtar.Parse(data).Files {
			texts = append(texts, string(f.Data))
		}
		for _, text := range texts {
			p, err := ir.Parse(text)
			if err != nil || p.Verify() != nil {
				continue
			}
			s := emit.Whole(p)
			switch text, err := hlo.Module(s, hlo.Options{}); {
			case err != nil && !strings.Contains(err.Error(), "%"):
				t.Errorf("%s: no op is named: %v", file, err)
			case err != nil:
				refusals++
			default:
				modules++
				if err := structure(text, s); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
	t.Log(fmt.Sprint(modules, " modules, ", refusals, " refusals"))
	if modules < 5 {
		t.Errorf("only %d programs give modules: this tests little", modules)
	}
}

var word = regexp.MustCompile(`"[^"]*"|%?[\w.]+|\s+|.`)

// Words of programs are dropped, doubled, exchanged, or put in the place of others: what still parses gives a text or an error.
func TestMangledProgramsGiveATextOrAnError(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	var texts []string
	for _, family := range slices.Sorted(maps.Keys(families)) {
		for _, e := range families[family] {
			texts = append(texts, e.text(e.body))
		}
	}
	for _, e := range cudnnCases() {
		texts = append(texts, e.text(e.body))
	}
	written, refused := 0, 0
	for range 7000 {
		words := word.FindAllString(texts[rng.IntN(len(texts))], -1)
		for range 1 + rng.IntN(2) {
			i, j := rng.IntN(len(words)), rng.IntN(len(words))
			switch rng.IntN(4) {
			case 0:
				words = slices.Delete(words, i, i+1)
			case 1:
				words = slices.Insert(words, i, words[i])
			case 2:
				words[i], words[j] = words[j], words[i]
			case 3:
				words[i] = words[j]
			}
		}
		p, err := ir.Parse(strings.Join(words, ""))
		if err != nil || p.Verify() != nil {
			continue
		}
		s := emit.Whole(p)
		text, err := hlo.Module(s, hlo.Options{CUDNN: true})
		if err != nil {
			refused++
			continue
		}
		written++
		if err := structure(text, s); err != nil {
			t.Fatalf("%v\n%s\n%s", err, p, text)
		}
	}
	if written < 300 || refused < 30 {
		t.Errorf("%d texts and %d errors: this tests little", written, refused)
	}
}
