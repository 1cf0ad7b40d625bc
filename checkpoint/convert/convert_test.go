// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	gomlx "github.com/gomlx/gomlx/ml/model/checkpoint"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/state"
)

// newCheckpoint saves two variables and the step, one of them in two pieces.
func newCheckpoint(t *testing.T, dir string) *checkpoint.Checkpoint {
	t.Helper()
	piece := func(path string, d dtypes.DType, dims []int, r state.Region, b ...byte) checkpoint.Chunk {
		return checkpoint.Chunk{Piece: state.Piece{Path: path, DType: d, Shape: dims, Region: r}, Bytes: b}
	}
	folder := filepath.Join(dir, checkpoint.Name(0, 7))
	m := &checkpoint.Manifest{Step: 7, Variables: 3}
	for i, chunks := range [][]checkpoint.Chunk{
		{piece("/dense/weights", dtypes.Int8, []int{2, 3}, state.Box([]int{0, 0}, []int{2, 2}), 0, 1, 3, 4), piece("/global_step", dtypes.Int64, nil, state.Whole(nil), 7, 0, 0, 0, 0, 0, 0, 0)},
		{piece("/dense/weights", dtypes.Int8, []int{2, 3}, state.Box([]int{0, 2}, []int{2, 3}), 2, 5), piece("/dense/biases", dtypes.Float32, []int{1}, state.Whole([]int{1}), 0, 0, 0x80, 0x3f)},
	} {
		file, err := checkpoint.Write(checkpoint.OS, folder, i, chunks)
		if err != nil {
			t.Fatal(err)
		}
		m.Files = append(m.Files, file)
		m.Bytes += file.DataBytes
	}
	for key, value := range map[string]any{"seed": int64(1<<60 + 1), "rate": 0.5, "sizes": []int{1, 2}} {
		p, ok := checkpoint.NewParam("/optimizer", key, value)
		if !ok {
			t.Fatal(key)
		}
		m.Params = append(m.Params, p)
	}
	if err := checkpoint.Commit(checkpoint.OS, folder, m); err != nil {
		t.Fatal(err)
	}
	return open(t, folder)
}

func open(t *testing.T, folder string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(checkpoint.OS, folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func mustBeSame(t *testing.T, a, b *checkpoint.Checkpoint) {
	t.Helper()
	if d, err := checkpoint.Compare(a, b); err != nil || len(d) > 0 || a.Manifest.Step != b.Manifest.Step {
		t.Errorf("%v, %v, steps %d and %d", d, err, a.Manifest.Step, b.Manifest.Step)
	}
}

func TestASafetensorsFileIsWrittenAndReadBack(t *testing.T) {
	dir := t.TempDir()
	c := newCheckpoint(t, dir)
	file := filepath.Join(dir, "model.safetensors")
	if err := ToSafetensors(c, checkpoint.OS, file, nil); err != nil {
		t.Fatal(err)
	}
	// What others read of it: the length of the header, JSON, and bytes in its order.
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	var header map[string]struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets []int  `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	w := header["/dense/weights"]
	if data := b[8+n:]; w.DType != "I8" || !slices.Equal(w.Shape, []int{2, 3}) || !slices.Equal(data[w.Offsets[0]:w.Offsets[1]], []byte{0, 1, 2, 3, 4, 5}) || len(header) != 4 {
		t.Errorf("%+v", header)
	}
	name, err := FromSafetensors(checkpoint.OS, file, filepath.Join(dir, "back"), nil)
	if err != nil {
		t.Fatal(err)
	}
	mustBeSame(t, c, open(t, filepath.Join(dir, "back", name)))
}

func TestTensorsCanHaveNamesOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	c := newCheckpoint(t, dir)
	file := filepath.Join(dir, "model.safetensors")
	names := Names{"/dense/weights": {Name: "model.dense.weight"}}
	if err := ToSafetensors(c, checkpoint.OS, file, names); err != nil {
		t.Fatal(err)
	}
	all, done, err := checkpoint.ReadTensors(checkpoint.OS, file)
	if err != nil || len(all) != 1 || all[0].Name != "model.dense.weight" || !all[0].Shape.Equal(shapes.Make(dtypes.Int8, 2, 3)) {
		t.Fatal(all, err)
	}
	done()
	name, err := FromSafetensors(checkpoint.OS, file, filepath.Join(dir, "back"), names)
	if err != nil {
		t.Fatal(err)
	}
	if paths := open(t, filepath.Join(dir, "back", name)).Paths(); !slices.Equal(paths, []string{"/dense/weights"}) {
		t.Error(paths)
	}
	if err := ToSafetensors(c, checkpoint.OS, file, Names{"/dense/wights": {Name: "x"}}); err == nil || !strings.Contains(err.Error(), "/dense/wights") {
		t.Error(err)
	}
	if _, err := FromSafetensors(checkpoint.OS, file, dir, Names{"/x": {Name: "model.dense.wight"}}); err == nil || !strings.Contains(err.Error(), "model.dense.wight") {
		t.Error(err)
	}
}

// PyTorch has the weights of a layer with a row for each output.
func TestMatricesAreTransposed(t *testing.T) {
	dir := t.TempDir()
	c := newCheckpoint(t, dir)
	file := filepath.Join(dir, "model.safetensors")
	names := Names{"/dense/weights": {"model.dense.weight", true}, "/dense/biases": {Name: "model.dense.bias"}, "/global_step": {Name: "step"}}
	if err := ToSafetensors(c, checkpoint.OS, file, names); err != nil {
		t.Fatal(err)
	}
	all, done, err := checkpoint.ReadTensors(checkpoint.OS, file)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	i := slices.IndexFunc(all, func(t checkpoint.Tensor) bool { return t.Name == "model.dense.weight" })
	if b, err := all[i].Read(); err != nil || !all[i].Shape.Equal(shapes.Make(dtypes.Int8, 3, 2)) || !slices.Equal(b, []byte{0, 3, 1, 4, 2, 5}) {
		t.Error(all[i].Shape, b, err)
	}
	name, err := FromSafetensors(checkpoint.OS, file, filepath.Join(dir, "back"), names)
	if err != nil {
		t.Fatal(err)
	}
	mustBeSame(t, c, open(t, filepath.Join(dir, "back", name)))
	names["/dense/biases"] = Name{"model.dense.bias", true}
	if err := ToSafetensors(c, checkpoint.OS, file, names); err == nil || !strings.Contains(err.Error(), `"/dense/biases" is (Float32)[1]: only a matrix`) {
		t.Error(err)
	}
	if _, err := FromSafetensors(checkpoint.OS, file, dir, names); err == nil || !strings.Contains(err.Error(), `"model.dense.bias" is (Float32)[1]: only a matrix`) {
		t.Error(err)
	}
	large := make([]byte, 70*90*2)
	for i := range large {
		large[i] = byte(i * 7)
	}
	if there := transposed(large, 70, 90, 2); slices.Equal(there, large) || !slices.Equal(transposed(there, 90, 70, 2), large) || there[2*70] != large[2] {
		t.Error("a large matrix is wrong")
	}
}

func TestNamesAreReadFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "names.json")
	for text, want := range map[string]string{
		`{"/a": "x", "/b": "x"}`:                `"x" is the name of "/a" and "/b"`,
		`{"/a": ""}`:                            `"/a" has no name`,
		`{"/a": {"transpose": true}}`:           `"/a" has no name`,
		`{"/a": {"name": "x", "permute": [1]}}`: `"permute"`,
		`["x"]`:                                 "is to be a JSON object",
		`{"/a": 3}`:                             "is to be a JSON object",
		`{}`:                                    "has no names",
		`{"/a": "x", "/b": {"name": "y"}, "/c": {"name": "z", "transpose": true}}`: "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		names, err := ReadNames(file)
		if want == "" {
			again, e := json.Marshal(names)
			if err != nil || e != nil || string(again) != `{"/a":"x","/b":"y","/c":{"name":"z","transpose":true}}` {
				t.Errorf("%s, %v, %v", again, err, e)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestGoMLXLoadsWhatIsExportedAndBack(t *testing.T) {
	dir := t.TempDir()
	c := newCheckpoint(t, dir)
	folder := filepath.Join(dir, "gomlx")
	if err := ToGoMLX(c, folder); err != nil {
		t.Fatal(err)
	}
	store := model.NewStore()
	if _, err := gomlx.Load(store).Dir(folder).Done(); err != nil {
		t.Fatal(err)
	}
	if w := store.GetVariable("/dense/weights").MustValue(); !w.Equal(tensors.FromValue([][]int8{{0, 1, 2}, {3, 4, 5}})) {
		t.Error(w)
	}
	if rate, _ := store.GetParam("/optimizer/rate"); rate != 0.5 {
		t.Error(rate)
	}
	name, err := FromGoMLX(checkpoint.OS, folder, filepath.Join(dir, "back"))
	if err != nil {
		t.Fatal(err)
	}
	back := open(t, filepath.Join(dir, "back", name))
	mustBeSame(t, c, back)
	if len(back.Manifest.Params) != 3 {
		t.Errorf("%+v", back.Manifest.Params)
	}
	if err := ToGoMLX(c, folder); err == nil || !strings.Contains(err.Error(), "already") {
		t.Error(err)
	}
	if _, err := FromGoMLX(checkpoint.OS, filepath.Join(dir, "nowhere"), dir); err == nil {
		t.Error("there is nothing")
	}
}
