// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/easyparallel/epl/internal/tfrecord"
)

var at = time.Date(2026, 1, 2, 15, 4, 5, 600_000_000, time.UTC)

func TestJSONLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "metrics.jsonl")
	for step := range int64(2) { // a second start goes on in the same file
		s := JSONL(file)
		if err := s.Write(Record{step, at, map[string]float64{"loss": 0.5, "bad": math.NaN(), "worse": math.Inf(-1)}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	want := `{"step":0,"time":"2026-01-02T15:04:05.6Z","values":{"bad":"NaN","loss":0.5,"worse":"-Inf"}}` + "\n"
	if want += strings.Replace(want, `:0,`, `:1,`, 1); err != nil || string(text) != want {
		t.Errorf("%v: %s", err, text)
	}
	if err := JSONL(filepath.Join(file, "below")).Write(Record{}); err == nil || !strings.Contains(err.Error(), "epl: metrics") {
		t.Error(err)
	}
}

// Nothing is made before there is something to tell.
func TestSinksThatAreNotUsedMakeNothing(t *testing.T) {
	folder := t.TempDir()
	for _, s := range []Sink{JSONL(filepath.Join(folder, "x")), TensorBoard(filepath.Join(folder, "y"))} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if list, err := os.ReadDir(folder); err != nil || len(list) > 0 {
		t.Error(err, list)
	}
}

// fields are those of a message, by number: numbers as they are, and bytes.
func fields(t *testing.T, b []byte) (all map[protowire.Number][]any) {
	t.Helper()
	all = map[protowire.Number][]any{}
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		var x any
		switch kind {
		case protowire.VarintType:
			x, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			x, n = protowire.ConsumeFixed32(b)
		case protowire.Fixed64Type:
			x, n = protowire.ConsumeFixed64(b)
		default:
			x, n = protowire.ConsumeBytes(b)
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		all[field], b = append(all[field], x), b[n:]
	}
	return all
}

// records are those of an event file.
func records(t *testing.T, folder string) (all []map[protowire.Number][]any) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "events.out.tfevents.*"))
	if err != nil || len(files) != 1 {
		t.Fatal(err, files)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		n := binary.LittleEndian.Uint64(b)
		data := b[12 : 12+n]
		if binary.LittleEndian.Uint32(b[8:]) != tfrecord.Sum(b[:8]) || binary.LittleEndian.Uint32(b[12+n:]) != tfrecord.Sum(data) {
			t.Fatal("a checksum is wrong")
		}
		all, b = append(all, fields(t, data)), b[16+n:]
	}
	return all
}

func TestEventFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	s := TensorBoard(folder)
	if err := s.Write(Record{7, at, map[string]float64{"loss": 0.5, "accuracy": 0.25}}); err != nil {
		t.Fatal(err)
	}
	var h Histogram
	for _, x := range []float64{-1, 0, 2, 2, math.NaN()} {
		h.Add(x)
	}
	if err := s.WriteHistogram(8, at, "/w", &h); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all := records(t, folder)
	if len(all) != 4 || string(all[0][eventVersion][0].([]byte)) != "brain.Event:2" || all[1][eventSession] == nil || all[2][eventStep][0].(uint64) != 7 ||
		math.Float64frombits(all[2][eventTime][0].(uint64)) != float64(at.UnixNano())/1e9 {
		t.Fatal(all)
	}
	var got []string
	for _, v := range fields(t, all[2][eventSummary][0].([]byte))[summaryValue] {
		f := fields(t, v.([]byte))
		got = append(got, string(f[valueTag][0].([]byte)))
		if x := math.Float32frombits(f[valueSimple][0].(uint32)); x != map[string]float32{"loss": 0.5, "accuracy": 0.25}[got[len(got)-1]] {
			t.Error(got, x)
		}
	}
	if !slices.Equal(got, []string{"accuracy", "loss"}) {
		t.Error(got)
	}
	v := fields(t, fields(t, all[3][eventSummary][0].([]byte))[summaryValue][0].([]byte))
	x := fields(t, v[valueHistogram][0].([]byte))
	for field, want := range map[protowire.Number]float64{histMin: -1, histMax: 2, histCount: 4, histSum: 3, histSquares: 9} {
		if got := math.Float64frombits(x[field][0].(uint64)); got != want {
			t.Errorf("field %d is %v, want %v", field, got, want)
		}
	}
	if n := len(x[histLimits][0].([]byte)); n != 3*8 || len(x[histBuckets][0].([]byte)) != n {
		t.Errorf("%d bytes of limits", n)
	}
}

// Every value is in a bucket whose limits are around it.
func TestHistogram(t *testing.T) {
	for _, x := range []float64{1, 1.05, -1, -1.05, 1e-20, -1e-20, 0, 1e30, -1e30, 3e-12, -3e-12} {
		var h Histogram
		h.Add(x)
		limits, counts := h.Buckets()
		if len(limits) != 1 || counts[0] != 1 {
			t.Fatal(x, limits, counts)
		}
		high := limits[0]
		low := high / grow
		switch {
		case high < 0:
			low = high * grow
		case high == 0:
			low = -smallest
		case high == smallest:
			low = 0
		}
		const round = 1e-9
		if x > high+math.Abs(high)*round || x < low-math.Abs(low)*round {
			t.Errorf("%g is in the bucket from %g to %g", x, low, high)
		}
	}
	var h Histogram
	h.Add(math.Inf(1))
	if h.NotFinite != 1 || h.Count != 0 {
		t.Error(h)
	}
}
