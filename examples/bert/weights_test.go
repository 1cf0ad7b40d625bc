// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/checkpoint/convert"
)

// stored is a tensor for a file: its shape and values.
type stored struct {
	shape  []int
	values []float64
}

// writeTensors writes a safetensors file with values of a type.
func writeTensors(t *testing.T, path, dtype string, all map[string]stored) {
	t.Helper()
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var data bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		from := data.Len()
		for _, v := range all[name].values {
			var err error
			switch dtype {
			case "F32":
				err = binary.Write(&data, binary.LittleEndian, float32(v))
			case "F16":
				err = binary.Write(&data, binary.LittleEndian, float16.FromFloat32(float32(v)).Bits())
			case "BF16":
				err = binary.Write(&data, binary.LittleEndian, bfloat16.FromFloat32(float32(v)).Bits())
			default:
				err = binary.Write(&data, binary.LittleEndian, v)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		header[name] = map[string]any{"dtype": dtype, "shape": all[name].shape, "data_offsets": []int{from, data.Len()}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	file = append(append(file, text...), data.Bytes()...)
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
}

// small is a network for tests.
var small = bert{layers: 2, hidden: 8, heads: 2, vocabulary: 11, positions: 7}

// randomWeights are those of a network as the Hub stores them: matrices have a row for each output.
func randomWeights(b bert, head bool) map[string]stored {
	r := rand.New(rand.NewPCG(5, 6))
	all := map[string]stored{}
	for _, w := range b.weights() {
		if w.Optional && !head {
			continue
		}
		s := stored{shape: slices.Clone(w.Shape)}
		if w.Transpose {
			slices.Reverse(s.shape)
		}
		for range tensorSize(s.shape) {
			s.values = append(s.values, math.Round(r.NormFloat64()*64)/128) // exact in all types
		}
		all[w.Names[0]] = s
	}
	return all
}

func tensorSize(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func TestTheNetworkComputesWhatBERTComputes(t *testing.T) {
	weights := randomWeights(small, true)
	folder := t.TempDir()
	writeTensors(t, filepath.Join(folder, "model.safetensors"), "F32", weights)
	store := model.NewStore()
	env := newEnv(t)
	if err := small.load(env, store, folder); err != nil {
		t.Fatal(err)
	}
	w := window{ids: []int32{1, 10, 3, 4, 0}, segments: []int32{0, 0, 1, 1, 0}, mask: []int32{1, 1, 1, 1, 0}}
	other := window{ids: []int32{7, 7, 2, 0, 9}, segments: []int32{0, 1, 1, 1, 1}, mask: []int32{1, 1, 1, 1, 1}}
	exec, err := model.NewExec(env.Backend(), store, small.logits)
	if err != nil {
		t.Fatal(err)
	}
	in := inputs([]window{w, other})
	got, err := exec.Call(in[0], in[1], in[2])
	if err != nil {
		t.Fatal(err)
	}
	for i, one := range []window{w, other} {
		want := reference{small, weights}.logits(one)
		for end := range 2 {
			for at := range one.ids {
				g := float64(tensors.MustCopyFlatData[float32](got[end])[i*len(one.ids)+at])
				if math.Abs(g-want[at][end]) > 1e-4 {
					t.Errorf("window %d, position %d, logit %d: got %v, want %v", i, at, end, g, want[at][end])
				}
			}
		}
	}
}

func TestWeightsMayHaveOtherNamesAndTypes(t *testing.T) {
	for name, c := range map[string]struct{ dtype, prefix, gain, offset string }{
		"prefix":      {"F32", "bert.", "weight", "bias"},
		"gamma, beta": {"F32", "bert.", "gamma", "beta"},
		"float16":     {"F16", "", "weight", "bias"},
		"bfloat16":    {"BF16", "", "weight", "bias"},
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string]stored{
				c.prefix + "pooler.dense.weight":     {[]int{1}, []float64{1}}, // what is not used is no error
				"cls.predictions.bias":               {[]int{1}, []float64{1}},
				c.prefix + "embeddings.position_ids": {[]int{1}, []float64{1}},
			}
			for name, s := range randomWeights(small, false) {
				name = strings.Replace(name, "LayerNorm.weight", "LayerNorm."+c.gain, 1)
				all[c.prefix+strings.Replace(name, "LayerNorm.bias", "LayerNorm."+c.offset, 1)] = s
			}
			folder := t.TempDir()
			writeTensors(t, filepath.Join(folder, "model.safetensors"), c.dtype, all)
			store := model.NewStore()
			if err := small.load(newEnv(t), store, folder); err != nil {
				t.Fatal(err)
			}
			v := store.GetVariable("/layer_1/intermediate/weights")
			if v == nil {
				t.Fatal("a variable is not there")
			}
			stored := all[c.prefix+"encoder.layer.1.intermediate.dense.weight"]
			got := tensors.MustCopyFlatData[float32](v.MustValue())
			for in := range small.hidden {
				for out := range 4 * small.hidden {
					if want := stored.values[out*small.hidden+in]; float64(got[in*4*small.hidden+out]) != want {
						t.Fatalf("weight from %d to %d: got %v, want %v", in, out, got[in*4*small.hidden+out], want)
					}
				}
			}
			if store.GetVariable("/answers/weights") != nil {
				t.Error("the head is for the training to find")
			}
		})
	}
}

func TestSeveralFilesMakeAModel(t *testing.T) {
	folder := t.TempDir()
	parts := [2]map[string]stored{{}, {}}
	i := 0
	for name, s := range randomWeights(small, true) {
		parts[i%2][name] = s
		i++
	}
	writeTensors(t, filepath.Join(folder, "model-00001-of-00002.safetensors"), "F32", parts[0])
	writeTensors(t, filepath.Join(folder, "model-00002-of-00002.safetensors"), "F32", parts[1])
	store := model.NewStore()
	if err := small.load(newEnv(t), store, folder); err != nil {
		t.Fatal(err)
	}
	if got, want := store.NumVariables(), len(small.weights()); got != want {
		t.Errorf("%d variables, want %d", got, want)
	}
}

func TestWeightsThatDoNotFitAreRefusedByName(t *testing.T) {
	for name, c := range map[string]struct {
		change func(map[string]stored)
		dtype  string
		want   string
	}{
		"missing": {func(w map[string]stored) { delete(w, "encoder.layer.1.output.LayerNorm.bias") }, "F32", "missing encoder.layer.1.output.LayerNorm.bias; unexpected nothing; see -size, -layers"},
		"another layer": {func(w map[string]stored) {
			w["bert.encoder.layer.2.output.dense.bias"] = stored{[]int{8}, make([]float64, 8)}
		}, "F32", "a BERT of 2 layers: epl: the weights in "},
		"another shape": {func(w map[string]stored) {
			w["embeddings.word_embeddings.weight"] = stored{[]int{12, 8}, make([]float64, 96)}
		}, "F32", "the tensor embeddings.word_embeddings.weight of "},
		"the other way": {func(w map[string]stored) {
			w["encoder.layer.0.output.dense.weight"] = stored{[]int{32, 8}, make([]float64, 256)}
		}, "F32", "is [32 8], and the model has [8 32] there"},
		"another type":   {func(map[string]stored) {}, "F64", "has values of type Float64; float32, float16 and bfloat16 can be read"},
		"too few values": {func(w map[string]stored) { w["embeddings.LayerNorm.bias"] = stored{[]int{8}, make([]float64, 7)} }, "F32", "\"embeddings.LayerNorm.bias\" of shape "},
	} {
		weights, folder := randomWeights(small, false), t.TempDir()
		c.change(weights)
		writeTensors(t, filepath.Join(folder, "model.safetensors"), c.dtype, weights)
		if err := small.load(newEnv(t), model.NewStore(), folder); err == nil || !strings.HasPrefix(err.Error(), "bert: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v\nwant …%s…", name, err, c.want)
		}
	}
}

// A plan needs shapes: the files may be gone when it is made. What a program asks for is read.
func TestAPlanReadsHeadersOfWeightsOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan")
	t.Setenv(epl.EnvPlanOut, file)
	weights, folder := randomWeights(small, true), t.TempDir()
	writeTensors(t, filepath.Join(folder, "model.safetensors"), "F32", weights)
	env, store := newEnv(t), model.NewStore()
	if err := small.load(env, store, folder); err != nil {
		t.Fatal(err)
	}
	for i, got := range tensors.MustCopyFlatData[float32](store.GetVariable("/layer_0/output/biases").MustValue()) {
		if want := weights["encoder.layer.0.output.dense.bias"].values[i]; float64(got) != want {
			t.Errorf("bias %d: got %v, want %v", i, got, want)
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	trainer := train.NewTrainer(env.Backend(), store, small.logits, answerLoss, epl.Optimizer(optimizer.StochasticGradientDescent()), nil, nil)
	ds := batches{windows: []window{{ids: []int32{1, 10, 3}, segments: []int32{0, 0, 1}, mask: []int32{1, 1, 1}}}, size: 1}
	if _, err := train.NewLoop(trainer).RunSteps(env.Dataset(ds), 1); err == nil || !strings.Contains(err.Error(), "EPL_PLAN_OUT is set") {
		t.Fatalf("%+v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	err := store.GetVariable("/layer_0/output/weights").MustValue().ConstFlatData(func(any) {})
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("it was read before: %v", err)
	}
}

// A model of the Hub is trained, exported with the names of the Hub, and imported again: it answers the same, and the program loads the file as any of the Hub.
func TestWeightsGoToTheHubAndBack(t *testing.T) {
	weights, folder, dir := randomWeights(small, true), t.TempDir(), t.TempDir()
	writeTensors(t, filepath.Join(folder, "model.safetensors"), "F32", weights)
	windows := []window{{ids: []int32{1, 10, 3, 4, 0}, segments: []int32{0, 0, 1, 1, 0}, mask: []int32{1, 1, 1, 1, 0}, end: 3}}
	logits := func(env *epl.Env, store *model.Store) []float32 {
		t.Helper()
		exec, err := model.NewExec(env.Backend(), store, small.logits)
		if err != nil {
			t.Fatal(err)
		}
		in := inputs(windows)
		got, err := exec.Call(in[0], in[1], in[2])
		if err != nil {
			t.Fatal(err)
		}
		return slices.Concat(tensors.MustCopyFlatData[float32](got[0]), tensors.MustCopyFlatData[float32](got[1]))
	}
	saved := func(env *epl.Env, store *model.Store, dir string) *epl.Checkpoint {
		t.Helper()
		saver, err := env.Checkpoints(store).Dir(dir).Done()
		if err != nil {
			t.Fatal(err)
		}
		return saver
	}

	env, store := newEnv(t), model.NewStore()
	if err := small.load(env, store, folder); err != nil {
		t.Fatal(err)
	}
	saver := saved(env, store, filepath.Join(dir, "trained"))
	before := logits(env, store)
	trainer := train.NewTrainer(env.Backend(), store, small.logits, answerLoss, epl.Optimizer(optimizer.Adam().LearningRate(0.01).Done()), nil, nil)
	if _, err := train.NewLoop(trainer).RunSteps(env.Dataset(batches{windows: windows, size: 1}), 2); err != nil {
		t.Fatal(err)
	}
	want := logits(env, store)
	if slices.Equal(before, want) {
		t.Error("nothing was trained")
	}
	if err := saver.Save(); err != nil {
		t.Fatal(err)
	}

	if err := run(flags{names: filepath.Join(dir, "names.json"), layers: small.layers, hidden: small.hidden, heads: small.heads}, io.Discard); err != nil {
		t.Fatal(err)
	}
	names, err := convert.ReadNames(filepath.Join(dir, "names.json"))
	if err != nil {
		t.Fatal(err)
	}
	checkpoints, _, _, err := checkpoint.List(checkpoint.OS, filepath.Join(dir, "trained"))
	if err != nil || len(checkpoints) != 1 {
		t.Fatal(checkpoints, err)
	}
	opened, err := checkpoint.Open(checkpoint.OS, filepath.Join(dir, "trained", checkpoints[0].Name))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	file := filepath.Join(dir, "model.safetensors")
	if err := convert.ToSafetensors(opened, checkpoint.OS, file, names); err != nil {
		t.Fatal(err)
	}
	all, done, err := checkpoint.ReadTensors(checkpoint.OS, file)
	if err != nil {
		t.Fatal(err)
	}
	done()
	header := map[string]checkpoint.Tensor{}
	for _, tensor := range all {
		header[strings.TrimPrefix(tensor.Name, "bert.")] = tensor
	}
	for name, w := range weights {
		if got := header[name].Shape; !slices.Equal(got.Dimensions, w.shape) || len(header) != len(weights) {
			t.Errorf("%s of %d tensors is %s, and was %v", name, len(header), got, w.shape)
		}
	}
	env, store = newEnv(t), model.NewStore()
	if err := small.load(env, store, dir); err != nil {
		t.Fatal(err)
	}
	if got := logits(env, store); !slices.Equal(got, want) {
		t.Errorf("exported: got %v, want %v", got, want)
	}

	if _, err := convert.FromSafetensors(checkpoint.OS, file, filepath.Join(dir, "imported"), names); err != nil {
		t.Fatal(err)
	}
	env, store = newEnv(t), model.NewStore()
	saved(env, store, filepath.Join(dir, "imported"))
	if got := logits(env, store); !slices.Equal(got, want) {
		t.Errorf("imported: got %v, want %v", got, want)
	}
}
