// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/metrics"
)

// All that a sink gets is finite, and about the devices there are; histograms have all elements of the trained variables.
func TestMetricsTellHowATrainingGoes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "metrics.jsonl")
	counts := &counter{}
	if err := trainWith(6, metrics.JSONL(file), counts); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, sent := 0, 0.0
	for s := bufio.NewScanner(f); s.Scan(); lines++ {
		var r struct {
			Step   int
			Values map[string]float64
		}
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if want := []int{1, 2, 4, 6}[lines]; r.Step != want || r.Values["Loss"] <= 0 || r.Values["epl/memory bytes, device 1"] <= 0 {
			t.Errorf("step %d: %s", want, s.Text())
		}
		if later := lines > 0; (r.Values["epl/step seconds"] > 0) != later || (r.Values["epl/samples per second"] > 0) != later {
			t.Errorf("record %d has no time of a step, or the first has one: %s", lines, s.Text())
		}
		sent += r.Values["epl/sent bytes, device 0"]
	}
	if lines != 4 || sent == 0 {
		t.Errorf("%d records, %g bytes sent", lines, sent)
	}
	if len(counts.elements) == 0 {
		t.Error("there are no histograms")
	}
	for name, n := range counts.elements {
		if n == 0 || !strings.HasPrefix(name, "/") {
			t.Errorf("%s has %d elements", name, n)
		}
	}
}

// counter is a sink that counts the elements of variables.
type counter struct {
	broken
	elements map[string]int64
}

func (c *counter) Write(metrics.Record) error { return nil }

func (c *counter) WriteHistogram(step int64, _ time.Time, name string, h *metrics.Histogram) error {
	if c.elements == nil {
		c.elements = map[string]int64{}
	}
	c.elements[name] += h.Count
	return nil
}

// What is wrong from the start ends a training; what goes wrong later does not, and Close tells it.
func TestASinkThatFailsLaterLosesNothingButRecords(t *testing.T) {
	for takes, steps := range map[int]int{0: 0, 2: 5} {
		s := &broken{takes: takes}
		good := filepath.Join(t.TempDir(), "metrics.jsonl")
		err := trainWith(5, metrics.JSONL(good), s)
		if err == nil || !strings.Contains(err.Error(), "the disk is full") || !s.closed {
			t.Errorf("after %d records: %v, closed %v", takes, err, s.closed)
		}
		text, _ := os.ReadFile(good)
		if last := strings.Contains(string(text), `"step":4`); last != (steps > 0) {
			t.Errorf("after %d records, the other sink has\n%s", takes, text)
		}
	}
}
