// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/pkg/errors"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/easyparallel/epl/data"
	"github.com/easyparallel/epl/metrics"
)

func file(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// number makes a sample of a record like {"n": 3}, or of its length.
func number(line Record) (data.Sample, error) {
	var v struct{ N int64 }
	if err := line.JSON(&v); err != nil {
		return data.Sample{}, err
	}
	return data.Sample{Inputs: []*tensors.Tensor{tensors.FromScalar(v.N)}}, nil
}

func TestLinesAreFoundWhateverIsAroundThem(t *testing.T) {
	long := strings.Repeat("x", 1<<19) // longer than what is read at once
	a := file(t, "a.txt", "one\n\n  two \r\n\t\n\nthree")
	b := file(t, "b.txt", "\n\n"+long+"\nfour\n"+strings.Repeat(" ", 1<<19)+"\n")
	l, err := OpenLines([]string{a, b}, number)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var got []string
	var at []int64
	for i := range l.Len() {
		r, err := l.Record(i)
		if err != nil {
			t.Fatal(err)
		}
		got, at = append(got, string(r.Bytes)), append(at, r.At)
	}
	if want := []string{"one", "two", "three", long, "four"}; !slices.Equal(got, want) || !slices.Equal(at, []int64{0, 7, 16, 2, 2 + 1<<19 + 1}) {
		t.Errorf("%d lines at %v: %.40q", len(got), at, got)
	}
	if _, err := l.Record(5); err == nil {
		t.Error("there is a line too many")
	}
}

func TestWhatIsWrongWithLinesNamesTheFileAndTheByte(t *testing.T) {
	good, empty := file(t, "a.jsonl", "{\"n\": 1}\n{\"n\": x}\n"), file(t, "b.jsonl", "\n \n")
	if _, err := OpenLines([]string{good, empty}, number); err == nil || !strings.Contains(err.Error(), empty+": there is no sample") {
		t.Error(err)
	}
	if _, err := OpenLines([]string{good, "/not/there"}, number); err == nil || !strings.Contains(err.Error(), "/not/there") {
		t.Error(err)
	}
	l, err := OpenLines([]string{good}, number)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sample(1, nil); err == nil || !strings.Contains(err.Error(), good+": byte 16") {
		t.Error(err)
	}
	if err := os.Truncate(good, 12); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sample(1, nil); err == nil || !strings.Contains(err.Error(), good+": byte 12: it ends here") {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Sample(0, nil); err == nil || !strings.Contains(err.Error(), "was closed") {
		t.Error(err)
	}
}

// example makes a tf.train.Example, by the format of protocol buffers.
func example(packed bool, floats []float32, ints []int64, bytes ...string) []byte {
	message := func(to []byte, n protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, n, protowire.BytesType), b)
	}
	var lists [4][]byte
	for _, b := range bytes {
		lists[1] = message(lists[1], 1, []byte(b))
	}
	for _, x := range floats {
		if !packed {
			lists[2] = protowire.AppendTag(lists[2], 1, protowire.Fixed32Type)
		}
		lists[2] = protowire.AppendFixed32(lists[2], math.Float32bits(x))
	}
	for _, x := range ints {
		if !packed {
			lists[3] = protowire.AppendTag(lists[3], 1, protowire.VarintType)
		}
		lists[3] = protowire.AppendVarint(lists[3], uint64(x))
	}
	if packed {
		lists[2], lists[3] = message(nil, 1, lists[2]), message(nil, 1, lists[3])
	}
	var features []byte
	for i, name := range []string{1: "text", 2: "floats", 3: "ints"} {
		if i > 0 {
			features = message(features, 1, message(message(nil, 1, []byte(name)), 2, message(nil, protowire.Number(i), lists[i])))
		}
	}
	return message(nil, 1, features)
}

func TestTFRecordsAreReadAsExamples(t *testing.T) {
	var text []byte
	for _, packed := range []bool{true, false} {
		text = AppendTFRecord(text, example(packed, []float32{1.5, -2}, []int64{3, -4}, "a", "bc"))
	}
	text = AppendTFRecord(text, nil)
	path := file(t, "x.tfrecord", string(text))
	x, err := OpenTFRecords([]string{path}, func(Record) (data.Sample, error) { return data.Sample{}, nil })
	if err != nil || x.Len() != 3 {
		t.Fatal(err)
	}
	defer x.Close()
	for i := range 2 {
		r, err := x.Record(i)
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.Example()
		if err != nil || len(e) != 3 || !slices.Equal(e["floats"].Floats, []float32{1.5, -2}) || !slices.Equal(e["ints"].Ints, []int64{3, -4}) ||
			len(e["text"].Bytes) != 2 || string(e["text"].Bytes[1]) != "bc" {
			t.Errorf("record %d: %+v, %v", i, e, err)
		}
	}
}

// Event files of TensorBoard have the same format, and another writer.
func TestFilesOfOtherWritersAreRead(t *testing.T) {
	dir := t.TempDir()
	sink := metrics.TensorBoard(dir)
	if err := sink.Write(metrics.Record{Step: 3, Time: time.Unix(1, 0), Values: map[string]float64{"loss": 0.5}}); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*tfevents*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	x, err := OpenTFRecords(files, number)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	found := false
	for i := range x.Len() {
		r, err := x.Record(i)
		if err != nil {
			t.Error(err)
		}
		found = found || strings.Contains(string(r.Bytes), "loss")
	}
	if !found {
		t.Errorf("none of %d records is that of the loss", x.Len())
	}
}

func TestDamagedTFRecordsAreFoundWhereTheyAre(t *testing.T) {
	var text []byte
	for i := range 3 {
		text = AppendTFRecord(text, fmt.Appendf(nil, "{\"n\": %d}", i))
	}
	const size = beforeData + 8 + afterData
	changed := func(at int) string {
		b := slices.Clone(text)
		b[at]++
		return string(b)
	}
	for want, b := range map[string]string{
		"byte 24: the length of a record is damaged":  changed(size + 3),
		"byte 48: the file ends within a record":      string(text[:len(text)-1]),
		"byte 48: the file ends within a record that": string(text[:2*size+5]),
	} {
		path := file(t, "x", b)
		if _, err := OpenTFRecords([]string{path}, number); err == nil || !strings.Contains(err.Error(), path+": "+want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
	path := file(t, "x", changed(size+beforeData+2))
	x, err := OpenTFRecords([]string{path}, number)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := x.Sample(1, nil); err == nil || !strings.Contains(err.Error(), path+": byte 24: a record is damaged") {
		t.Error(err)
	}
	if s, err := x.Sample(2, nil); err != nil || s.Inputs[0].Value() != int64(2) {
		t.Error(s, err)
	}
}

func TestImagesHaveTheClassesOfTheirFolders(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"dog/2.png", "cat/1.png", "cat/notes.txt", "dog/3.PNG"} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		picture := image.NewGray(image.Rect(0, 0, 2, 2))
		picture.SetGray(1, 1, color.Gray{200})
		if err := png.Encode(f, picture); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	sample := func(i Image, random *rand.Rand) (data.Sample, error) {
		if _, _, _, alpha := i.Picture.At(1, 1).RGBA(); alpha == 0 || random == nil {
			return data.Sample{}, errors.New("it is empty")
		}
		return data.Sample{Inputs: []*tensors.Tensor{tensors.FromScalar(int64(i.Class))}}, nil
	}
	x, err := OpenImages(folder, sample)
	if err != nil || x.Len() != 3 || !slices.Equal(x.Classes, []string{"cat", "dog"}) {
		t.Fatal(x, err)
	}
	ds, err := data.FromIndex("images", x, data.IndexOptions{Batch: 3})
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range ds.Iter() {
		if err != nil || !slices.Equal(tensors.MustCopyFlatData[int64](b.Inputs[0]), []int64{0, 1, 1}) {
			t.Error(b, err)
		}
	}
	broken := filepath.Join(folder, "dog", "2.png")
	if err := os.Truncate(broken, 40); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Sample(1, nil); err == nil || !strings.Contains(err.Error(), broken+": byte 40") {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "fish"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenImages(folder, sample); err == nil || !strings.Contains(err.Error(), "fish has no image") {
		t.Error(err)
	}
	if _, err := OpenImages(t.TempDir(), sample); err == nil || !strings.Contains(err.Error(), "has no images in folders") {
		t.Error(err)
	}
}

// Training goes on anywhere in lines and records, and workers share them: each sample has one reader.
func TestRecordsGoOnAnywhere(t *testing.T) {
	var lines string
	var records []byte
	for i := range 20 {
		line := fmt.Sprintf("{\"n\": %d}", i)
		lines += line + "\n"
		records = AppendTFRecord(records, []byte(line))
	}
	text, tf := file(t, "a.jsonl", lines), file(t, "a.tfrecord", string(records))
	l, err := OpenLines([]string{text}, number)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, err := OpenTFRecords([]string{tf}, number)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	read := func(x data.Index, skip int, part data.Part) (all []int64) {
		ds, err := data.FromIndex("x", x, data.IndexOptions{Batch: 3, Epochs: 2, Shuffle: true, Seed: 8, Part: part})
		if err != nil {
			t.Fatal(err)
		}
		if err := ds.Skip(skip); err != nil {
			t.Fatal(err)
		}
		for b, err := range ds.Iter() {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, tensors.MustCopyFlatData[int64](b.Inputs[0])...)
		}
		return all
	}
	all := read(l, 0, data.Part{})
	for n := range 14 {
		if got := read(l, n, data.Part{}); !slices.Equal(got, all[min(3*n, 40):]) || !slices.Equal(got, read(r, n, data.Part{})) {
			t.Errorf("from %d on: %v", n, got)
		}
	}
	both := append(read(l, 0, data.Part{Own: 1, Of: 2}), read(l, 0, data.Part{First: 1, Own: 1, Of: 2})...)
	if slices.Sort(both); !slices.Equal(both, slices.Sorted(slices.Values(all))) {
		t.Errorf("two workers read %v", both)
	}
}

// Whatever a file is, reading it is an error that names it, or gives records that are in it.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("one\n\n two\r\n"))
	f.Add(AppendTFRecord(AppendTFRecord(nil, example(true, []float32{1}, []int64{2}, "x")), example(false, nil, []int64{-1})))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := file(t, "x", string(b))
		none := func(Record) (data.Sample, error) { return data.Sample{}, nil }
		lines, err := OpenLines([]string{path}, none)
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Error(err)
		}
		if err == nil {
			defer lines.Close()
			var want []string
			for _, line := range strings.Split(string(b), "\n") {
				if line = strings.Trim(line, " \t\r"); line != "" {
					want = append(want, line)
				}
			}
			var got []string
			for i := range lines.Len() {
				r, err := lines.Record(i)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(r.Bytes))
			}
			if !slices.Equal(got, want) {
				t.Errorf("lines %q, want %q", got, want)
			}
		}
		records, err := OpenTFRecords([]string{path}, none)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Error(err)
			}
			return
		}
		defer records.Close()
		var again []byte
		for i := range records.Len() {
			r, err := records.Record(i)
			if err != nil {
				return
			}
			again = AppendTFRecord(again, r.Bytes)
			if _, err := r.Example(); err != nil && !strings.Contains(err.Error(), path) {
				t.Error(err)
			}
		}
		if string(again) != string(b) {
			t.Errorf("records are %x, and the file is %x", again, b)
		}
	})
}

// Parsers of features take any bytes.
func FuzzExample(f *testing.F) {
	f.Add(example(true, []float32{1}, []int64{2}, "x"))
	f.Add([]byte{0x0a, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := (Record{File: "x", Bytes: b}).Example(); err != nil && !strings.Contains(err.Error(), "x: byte 0") {
			t.Error(err)
		}
	})
}
