// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hf

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl/checkpoint"
)

// write makes a file of float32 tensors, whose values count from 1 on.
func write(t *testing.T, file string, all map[string][]int) {
	t.Helper()
	var list []checkpoint.Tensor
	for name, dims := range all {
		shape := shapes.Make(dtypes.Float32, dims...)
		list = append(list, checkpoint.Tensor{Name: name, Shape: shape, Read: func() (b []byte, _ error) {
			for i := range shape.Size() {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(i+1)))
			}
			return b, nil
		}})
	}
	if err := checkpoint.WriteTensors(checkpoint.OS, file, list, nil); err != nil {
		t.Fatal(err)
	}
}

var sample = Weights{
	{Path: "/a/weights", Shape: []int{3, 2}, Names: []string{"a.weight", "a.w"}, Transpose: true},
	{Path: "/b/weights", Shape: []int{2, 1, 3}, Stored: []int{2, 3}, Names: []string{"b.weight"}},
	{Path: "/c/biases", Shape: []int{2}, Names: []string{"c.bias"}, Optional: true},
}

func TestWeightsAreLoadedAndSavedBitForBit(t *testing.T) {
	folder, back := t.TempDir(), t.TempDir()
	write(t, filepath.Join(folder, "one.safetensors"), map[string][]int{"m.a.w": {2, 3}})
	write(t, filepath.Join(folder, "two.safetensors"), map[string][]int{"m.b.weight": {2, 3}, "m.mask": {1}})
	store := model.NewStore()
	if err := sample.Load(store, folder, Options{Prefix: "m.", Ignore: func(name string) bool { return name == "mask" }}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"/a/weights": [][]float32{{1, 4}, {2, 5}, {3, 6}},
		"/b/weights": [][][]float32{{{1, 2, 3}}, {{4, 5, 6}}},
	} {
		if got := store.GetVariable(path).MustValue(); !got.Equal(tensors.MustFromAnyValue(want)) {
			t.Errorf("%s is %v", path, got)
		}
	}
	if store.GetVariable("/c/biases") != nil {
		t.Error("an optional weight that is in no file begins as the model has it")
	}
	if err := sample.Save(store, filepath.Join(back, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	want, err := openFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	got, err := openFolder(back)
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	for name, from := range map[string]string{"a.weight": "m.a.w", "b.weight": "m.b.weight"} {
		a, errA := got[name].values()
		b, errB := want[from].values()
		if errA != nil || errB != nil || !got[name].Shape.Equal(want[from].Shape) || !slices.Equal(a, b) {
			t.Errorf("%s: %v %v, %v %v", name, got[name].Shape, a, errA, errB)
		}
	}
}

func TestWeightsThatDoNotFitAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		files []map[string][]int
		want  string
	}{
		"missing":    {[]map[string][]int{{"a.weight": {2, 3}}}, "missing b.weight; unexpected nothing"},
		"unexpected": {[]map[string][]int{{"a.weight": {2, 3}, "b.weight": {2, 3}, "d": {1}}}, "missing nothing; unexpected d"},
		"shape":      {[]map[string][]int{{"a.weight": {3, 2}, "b.weight": {2, 3}}}, "is [3 2], and the model has [2 3] there"},
		"twice":      {[]map[string][]int{{"a.weight": {2, 3}}, {"a.weight": {2, 3}}}, "the tensor a.weight is in two files"},
		"no file":    {nil, "has no *.safetensors file"},
	} {
		folder := t.TempDir()
		for i, f := range c.files {
			write(t, filepath.Join(folder, string(rune('a'+i))+".safetensors"), f)
		}
		if err := sample.Load(model.NewStore(), folder, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := sample.Save(model.NewStore(), filepath.Join(t.TempDir(), "x")); err == nil || !strings.Contains(err.Error(), `the store has no variable "/a/weights"`) {
		t.Error(err)
	}
}

func TestFilesThatAreNoSafetensorsAreRefused(t *testing.T) {
	size := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
	for name, text := range map[string]string{
		"empty": "", "short": "abc", "a long header": size(1<<40) + "{}", "no JSON": size(2) + "xx",
		"an entry": size(7) + `{"a":1}`, "beyond the end": size(57) + `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   ` + "ab",
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "x.safetensors"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := openFolder(folder); err == nil || !strings.Contains(err.Error(), "x.safetensors is no safetensors file") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAModelIsFoundInTheCacheOfTheHub(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	snapshot := filepath.Join(cache, "models--openai-community--gpt2", "snapshots", "607a30d783dfa663caf39e06633721c8d4cfcd7e")
	if _, err := Find("openai-community/gpt2"); err == nil || !strings.Contains(err.Error(), "hf download openai-community/gpt2") {
		t.Error(err)
	}
	if err := os.MkdirAll(snapshot, 0o755); err != nil {
		t.Fatal(err)
	}
	refs := filepath.Join(cache, "models--openai-community--gpt2", "refs")
	if err := os.MkdirAll(refs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(refs, "main"), []byte("607a30d783dfa663caf39e06633721c8d4cfcd7e"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := Find("openai-community/gpt2"); err != nil || got != snapshot {
		t.Error(got, err)
	}
	if got, err := Find(cache); err != nil || got != cache {
		t.Error(got, err)
	}
	for _, model := range []string{"", "/not/there", "../x", "a/b/c"} {
		if _, err := Find(model); err == nil || !strings.Contains(err.Error(), "give a folder, or a name of the Hugging Face Hub") {
			t.Errorf("%q: %v", model, err)
		}
	}
}
