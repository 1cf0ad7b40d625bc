// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl/hf"
)

func newRandom() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// stored is a tensor of a file.
type stored struct {
	shape  []int
	values []float32
}

// readFile reads a safetensors file by its format alone: the length of a header, JSON, and values.
func readFile(t *testing.T, file string) map[string]stored {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	header := map[string]struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}{}
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	all := map[string]stored{}
	for name, e := range header {
		if name == "__metadata__" {
			continue
		}
		s := stored{shape: e.Shape}
		for part := range slices.Chunk(b[8+n:][e.Offsets[0]:e.Offsets[1]], 4) {
			s.values = append(s.values, math.Float32frombits(binary.LittleEndian.Uint32(part)))
		}
		if e.DType != "F32" {
			t.Errorf("%s is %s", name, e.DType)
		}
		all[name] = s
	}
	return all
}

// hubFolder makes the files of a small GPT-2, with the names, shapes and masks that those of the Hub have.
func hubFolder(t *testing.T, prefix string) (folder string, all map[string]stored) {
	t.Helper()
	const layers, width, vocabulary, positions = 2, 8, 300, 20
	r := newRandom()
	all = map[string]stored{}
	add := func(name string, dims ...int) {
		s := stored{shape: dims}
		n := 1
		for _, d := range dims {
			n *= d
		}
		for range n {
			s.values = append(s.values, float32(r.NormFloat64())/3)
		}
		all[prefix+name] = s
	}
	add("wte.weight", vocabulary, width)
	add("wpe.weight", positions, width)
	for _, h := range []string{"h.0.", "h.1."} {
		for _, ln := range []string{"ln_1", "ln_2"} {
			add(h+ln+".weight", width)
			add(h+ln+".bias", width)
		}
		add(h+"attn.bias", 1, 1, positions, positions) // the causal mask
		add(h+"attn.c_attn.weight", width, 3*width)
		add(h+"attn.c_attn.bias", 3*width)
		add(h+"attn.c_proj.weight", width, width)
		add(h+"attn.c_proj.bias", width)
		add(h+"mlp.c_fc.weight", width, 4*width)
		add(h+"mlp.c_fc.bias", 4*width)
		add(h+"mlp.c_proj.weight", 4*width, width)
		add(h+"mlp.c_proj.bias", width)
	}
	add("ln_f.weight", width)
	add("ln_f.bias", width)
	folder = t.TempDir()
	if err := writeTensors(filepath.Join(folder, "model.safetensors"), all); err != nil {
		t.Fatal(err)
	}
	config := `{"model_type":"gpt2","vocab_size":300,"n_positions":20,"n_ctx":20,"n_embd":8,"n_layer":2,"n_head":2,"activation_function":"gelu_new","layer_norm_epsilon":1e-05,"attn_pdrop":0.1}`
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	tokenizer, err := hf.TrainBPE(shakespeare[:20000], 300)
	if err != nil {
		t.Fatal(err)
	}
	if err := tokenizer.WriteFile(filepath.Join(folder, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	return folder, all
}

// Files of GPT-2 are read and written, bit for bit; under a plan, too.
func TestFilesOfGPT2MakeTheRoundTrip(t *testing.T) {
	for _, c := range []struct{ prefix, plan string }{{"", ""}, {"transformer.", " -devices 2 -split 2"}, {"", " -devices 2 -stages 2"}} {
		from, all := hubFolder(t, c.prefix)
		to := filepath.Join(t.TempDir(), "out")
		line := "-text " + shortText(t) + " -steps 0 -tokens 3 -prompt First -length 12 -batch 2 -model_dir " + from + c.plan
		first, err := run(parse(t, line+" -export "+to), io.Discard)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		got := readFile(t, filepath.Join(to, "model.safetensors"))
		masks := 0
		for name, want := range all {
			if strings.HasSuffix(name, ".attn.bias") {
				masks++
				continue
			}
			s := got[strings.TrimPrefix(name, c.prefix)]
			if !slices.Equal(s.shape, want.shape) || !slices.EqualFunc(s.values, want.values, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
				t.Errorf("%s: %v became %v", name, want.shape, s.shape)
			}
		}
		if masks != 2 || len(got) != len(all)-masks {
			t.Errorf("%d tensors became %d", len(all), len(got))
		}
		if m, err := readConfig(to); err != nil || m != (gpt{layers: 2, width: 8, heads: 2, vocabulary: 300, positions: 20, epsilon: 1e-5}) {
			t.Error(m, err)
		}
		again, err := run(parse(t, strings.Replace(line, from, to, 1)), io.Discard)
		if err != nil || again.valid != first.valid || again.text != first.text {
			t.Errorf("%+v is %+v after the round trip (%v)", first, again, err)
		}
	}
}

// The network computes what GPT-2 computes, written down once more, in float64 and without a tensor.
func TestTheNetworkComputesWhatGPT2Computes(t *testing.T) {
	folder, all := hubFolder(t, "")
	f := parse(t, "-model_dir "+folder)
	m, _, err := f.network()
	if err != nil {
		t.Fatal(err)
	}
	env, err := f.init()
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	store := model.NewStore()
	if err := m.load(env, store, folder); err != nil {
		t.Fatal(err)
	}
	exec, err := model.NewExec(env.Backend(), store, func(scope *model.Scope, ids *Node) *Node { return m.logits(scope, ids, nil) })
	if err != nil {
		t.Fatal(err)
	}
	ids := []int32{5, 299, 17, 17, 42}
	out, err := exec.Call([][]int32{ids})
	if err != nil {
		t.Fatal(err)
	}
	at, err := model.NewExec(env.Backend(), store, func(scope *model.Scope, ids, at *Node) *Node { return m.logits(scope, ids, at) })
	if err != nil {
		t.Fatal(err)
	}
	one, err := at.Call([][]int32{ids, {1, 2, 3, 4, 5}}, []int32{3, 0})
	if err != nil {
		t.Fatal(err)
	}
	got, want := tensors.MustCopyFlatData[float32](out[0]), reference(all, ids)
	for i, w := range want {
		for v, x := range w {
			if math.Abs(float64(got[i*300+v])-x) > 1e-4 {
				t.Fatalf("position %d, token %d: got %v, want %v", i, v, got[i*300+v], x)
			}
		}
	}
	for v, x := range want[3] {
		if g := tensors.MustCopyFlatData[float32](one[0])[v]; math.Abs(float64(g)-x) > 1e-4 {
			t.Fatalf("position 3 alone, token %d: got %v, want %v", v, g, x)
		}
	}
}

// reference are the logits of GPT-2 with two heads, as its paper and its published code have it.
func reference(all map[string]stored, ids []int32) [][]float64 {
	const width, heads = 8, 2
	vector := func(name string, row, n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = float64(all[name].values[row*n+i])
		}
		return v
	}
	linear := func(name string, x []float64) []float64 {
		w := all[name+".weight"]
		y := vector(name+".bias", 0, w.shape[1])
		for o := range y {
			for i, v := range x {
				y[o] += v * float64(w.values[i*w.shape[1]+o])
			}
		}
		return y
	}
	norm := func(name string, x []float64) []float64 {
		mean, variance := 0.0, 0.0
		for _, v := range x {
			mean += v / width
		}
		for _, v := range x {
			variance += (v - mean) * (v - mean) / width
		}
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = (v-mean)/math.Sqrt(variance+1e-5)*vector(name+".weight", 0, width)[i] + vector(name+".bias", 0, width)[i]
		}
		return y
	}
	x := make([][]float64, len(ids))
	for t, id := range ids {
		x[t] = vector("wte.weight", int(id), width)
		for i, v := range vector("wpe.weight", t, width) {
			x[t][i] += v
		}
	}
	for _, h := range []string{"h.0.", "h.1."} {
		var qkv [][]float64
		for t := range x {
			qkv = append(qkv, linear(h+"attn.c_attn", norm(h+"ln_1", x[t])))
		}
		for t := range x {
			y := make([]float64, width)
			for head := range heads {
				const size = width / heads
				weights, sum := make([]float64, t+1), 0.0
				for k := range weights {
					for i := range size {
						weights[k] += qkv[t][head*size+i] * qkv[k][width+head*size+i] / math.Sqrt(size)
					}
					weights[k] = math.Exp(weights[k])
					sum += weights[k]
				}
				for k, w := range weights {
					for i := range size {
						y[head*size+i] += w / sum * qkv[k][2*width+head*size+i]
					}
				}
			}
			for i, v := range linear(h+"attn.c_proj", y) {
				x[t][i] += v
			}
		}
		for t := range x {
			y := linear(h+"mlp.c_fc", norm(h+"ln_2", x[t]))
			for i, v := range y {
				y[i] = 0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			}
			for i, v := range linear(h+"mlp.c_proj", y) {
				x[t][i] += v
			}
		}
	}
	logits := make([][]float64, len(x))
	for t := range x {
		y := norm("ln_f", x[t])
		for v := range all["wte.weight"].shape[0] {
			sum := 0.0
			for i, w := range vector("wte.weight", v, width) {
				sum += y[i] * w
			}
			logits[t] = append(logits[t], sum)
		}
	}
	return logits
}

func TestFoldersThatAreNoGPT2AreRefused(t *testing.T) {
	for want, change := range map[string][2]string{
		`the model is a "llama"`:            {`"gpt2"`, `"llama"`},
		`the activation is "relu"`:          {`"gelu_new"`, `"relu"`},
		"n_inner is 7":                      {`"n_head"`, `"n_inner":7,"n_head"`},
		"describes no network":              {`"n_head":2`, `"n_head":3`},
		"missing h.2.attn.c_attn.bias":      {`"n_layer":2`, `"n_layer":3`},
		"is [300 8], and the model has":     {`"vocab_size":300`, `"vocab_size":301`},
		"and the network of -model_dir 299": {`"vocab_size":300`, `"vocab_size":299`},
		"has 5 positions":                   {`"n_positions":20`, `"n_positions":5`},
		"config.json":                       {`{`, ``},
	} {
		folder, _ := hubFolder(t, "")
		file := filepath.Join(folder, "config.json")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), change[0], change[1], 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := run(parse(t, "-text "+shortText(t)+" -steps 0 -length 12 -model_dir "+folder), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}

// writeTensors makes a safetensors file of float32.
func writeTensors(file string, all map[string]stored) error {
	store := model.NewStore()
	var weights hf.Weights
	for name, s := range all {
		path := "/" + strings.ReplaceAll(name, ".", "_")
		if _, err := store.CreateVariable(path, tensors.FromFlatDataAndDimensions(s.values, s.shape...)); err != nil {
			return err
		}
		weights = append(weights, hf.Weight{Path: path, Shape: s.shape, Names: []string{name}})
	}
	return weights.Save(store, file)
}
