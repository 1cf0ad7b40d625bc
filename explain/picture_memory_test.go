// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/schedule"
)

// twoStages is a pipeline: the second stage's value %12 is needed in backward, as is the first's %10.
const twoStages = `program "train"
instances 1 3
taskgraph 0 "first" replicate(1)
taskgraph 1 "second" replicate(1)
stage taskgraph 0 place 0
stage taskgraph 1 place 1
variable "/w" %2 trainable update %40 taskgraph 0
variable "/v" %3 trainable update %41 taskgraph 1
input %0
gradient %2 = %36
gradient %3 = %37
loss %13
outputs update %2 update %3 result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[256]} -> float32[256] : forward varying
  %2 = Parameter() {Name: "/w", Shape: float32[256]} -> float32[256] : forward taskgraph 0
  %3 = Parameter() {Name: "/v", Shape: float32[256]} -> float32[256] : forward taskgraph 1
  %10 = Mul(%0, %2) -> float32[256] : forward varying taskgraph 0
  %11 = Exp(%10) -> float32[256] : forward varying taskgraph 0
  %12 = Mul(%11, %3) -> float32[256] : forward varying taskgraph 1 place 1
  %13 = ReduceSum(%12) -> float32[] : forward varying taskgraph 1 place 1
  %30 = Exp(%12) -> float32[256] : backward varying taskgraph 1 place 1
  %31 = Mul(%30, %11) -> float32[256] : backward varying taskgraph 1 place 1
  %32 = Mul(%30, %3) -> float32[256] : backward varying taskgraph 1 place 1
  %33 = Mul(%32, %10) -> float32[256] : backward varying taskgraph 0 "model.go:12"
  %34 = Mul(%33, %0) -> float32[256] : backward varying taskgraph 0 "model.go:12"
  %36 = Merge(%34) {How: "mean"} -> float32[256] : backward taskgraph 0
  %37 = Merge(%31) {How: "mean"} -> float32[256] : backward taskgraph 1 place 1
  %38 = Merge(%13) {How: "mean"} -> float32[] : forward taskgraph 1 place 1
  %40 = Sub(%2, %36) -> float32[256] : apply taskgraph 0
  %41 = Sub(%3, %37) -> float32[256] : apply taskgraph 1 place 1
  return %40, %41, %38
}
`

func compiled(t *testing.T, text string) *Program {
	t.Helper()
	p := parse(t, text)
	s, err := schedule.Build(p, schedule.Options{MaxSplits: 1, Strategy: schedule.PreferBackward, Ranks: [][]int{{0, 1}}})
	if err != nil {
		t.Fatal(err)
	}
	return &Program{Result: plan.Result{Recorded: p, Final: p, Schedule: s, Account: s.Account(p, schedule.Traffic{}, nil)}, Number: 1, Config: settings(t, nil)}
}

func settings(t *testing.T, params map[string]any) *config.Config {
	t.Helper()
	cfg, err := config.New(params)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func memoryPictureOf(t *testing.T, c *Program, params map[string]any) string {
	t.Helper()
	c.Config = settings(t, params)
	var b bytes.Buffer
	if err := c.MemoryPicture(&b); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return b.String()
		} else if err != nil {
			t.Fatalf("this is no SVG: %v\n%s", err, &b)
		}
	}
}

func TestThePictureOfMemoryIsThatOfTheGoldenFile(t *testing.T) {
	got := memoryPictureOf(t, compiled(t, twoStages), map[string]any{"cluster.device_memory": "8KiB", "pipeline.num_micro_batch": 3})
	path := filepath.Join("testdata", "memory.svg")
	if f := flag.Lookup("update"); f.Value.String() == "true" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the picture differs from %s (rewrite it with -update if that is meant):\n%s", path, got)
	}
}

func TestThePictureOfMemoryMarksThePeakOfTheAccount(t *testing.T) {
	c := compiled(t, twoStages)
	p := newMemoryPicture(c, false)
	if len(p.Panels) != 2 {
		t.Fatalf("%d panels for two devices", len(p.Panels))
	}
	for place, panel := range p.Panels {
		peak := bytesText(c.Account.Places[place].Peak.Total())
		if panel.Peak.Text != peak || !strings.HasPrefix(panel.When, "peak "+peak+", at "+c.Account.Places[place].Text) {
			t.Errorf("device %d: %q, %q; the account has %s", place, panel.Peak.Text, panel.When, peak)
		}
		var bands []string
		for _, b := range panel.Bands {
			bands = append(bands, b.Class+" "+b.Text)
		}
		want := [][]string{
			{"forward 0", "forward 1", "backward 0", "forward 2", "backward 1", "backward 2", "apply apply"},
			{"forward 0", "backward 0", "forward 1", "backward 1", "forward 2", "backward 2", "apply apply"},
		}[place]
		if fmt.Sprint(bands) != fmt.Sprint(want) {
			t.Errorf("device %d goes through %v, not %v", place, bands, want)
		}
	}
}

func TestWhatADeviceHasIsDrawnUnlessItIsFarAbove(t *testing.T) {
	c := compiled(t, twoStages)
	for memory, drawn := range map[string]bool{"": false, "1KiB": true, "8KiB": true, "1GiB": false} {
		params := map[string]any{}
		if memory != "" {
			params["cluster.device_memory"] = memory
		}
		svg := memoryPictureOf(t, c, params)
		if strings.Contains(svg, `class="limit"`) != drawn {
			t.Errorf("cluster.device_memory=%q is drawn: %v", memory, !drawn)
		}
		if said := strings.Contains(svg, "cluster.device_memory="+memory); said != (memory != "") {
			t.Errorf("cluster.device_memory=%q is said: %v", memory, said)
		}
	}
}

func TestDevicesThatNeedTheSameShareAPanel(t *testing.T) {
	c := compiled(t, twoStages)
	c.Account.Places[1].Peak = c.Account.Places[0].Peak
	svg := memoryPictureOf(t, c, nil)
	if n := strings.Count(svg, `class="device"`); n != 1 || !strings.Contains(svg, "devices 0 1") {
		t.Errorf("%d panels for two devices that need the same", n)
	}
}

func TestAProgramOnOneDeviceHasAPictureToo(t *testing.T) {
	p := parse(t, small)
	svg := memoryPictureOf(t, &Program{Result: plan.Result{Recorded: p, Final: p, Account: schedule.WholeAccount(p, nil)}}, nil)
	for _, want := range []string{`class="forward"`, `class="backward"`, `class="apply"`, "device 0"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture has no %s", want)
		}
	}
}

func TestAPictureOfMemoryStaysSmallAndHighWithThousandsOfOps(t *testing.T) {
	course := make([]schedule.Sample, 12345)
	for i := range course {
		course[i].Live[schedule.ForActivations] = int64(i % 100)
	}
	course[777].Live[schedule.ForTemporaries] = 1000
	columns, peak := squeeze(course, 500)
	if len(columns) != 500 || columns[peak].Total() != 1077 || peak != 777*500/12345 {
		t.Errorf("%d columns, %v at %d", len(columns), columns[peak], peak)
	}
}

func TestHostileNamesStayTextInThePictureOfMemory(t *testing.T) {
	c := compiled(t, strings.ReplaceAll(twoStages, "model.go:12", "<script>&x.go:1"))
	c.Recorded.Name = "</text><script>alert('\x01')</script>"
	if svg := memoryPictureOf(t, c, nil); strings.Contains(svg, "<script") {
		t.Errorf("a name is code:\n%s", svg)
	}
}

func TestThePageOfATrainingStepHasThePictureOfMemory(t *testing.T) {
	c := compiled(t, twoStages)
	for _, account := range []*schedule.Account{c.Account, nil} {
		c.Account = account
		var page bytes.Buffer
		if err := c.WritePage(&page, []Stage{{Name: "recorded", Program: c.Recorded}}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(page.String(), `<svg xmlns="http://www.w3.org/2000/svg" class="memory"`) != (account != nil) {
			t.Errorf("the page has a picture of memory: %v", account == nil)
		}
	}
}

func TestPhasesAscendWithAsFewExceptionsAsPossible(t *testing.T) {
	for in, want := range map[string]string{
		"":            "",
		"ffffbbbaa":   "ffffbbbaa",
		"bfffffbbbb":  "ffffffbbbb", // a constant of backward
		"ffbffbfbbbb": "fffffffbbbb",
		"ffffbbbbff":  "ffffbbbbbb", // metrics
		"fbfbfbbaab":  "fffbbbbaaa",
		"bbb":         "bbb",
		"a":           "a",
	} {
		var phases []ir.Phase
		for _, p := range in {
			phases = append(phases, map[rune]ir.Phase{'f': ir.Forward, 'b': ir.Backward, 'a': ir.Apply}[p])
		}
		got := ""
		for _, p := range ascending(phases) {
			got += p.String()[:1]
		}
		wrong := func(x string) (n int) {
			for i := range x {
				if x[i] != in[i] {
					n++
				}
			}
			return n
		}
		if !slices.IsSorted(ascending(phases)) || len(got) != len(in) || wrong(got) != wrong(want) {
			t.Errorf("%s is shown as %s, not as %s", in, got, want)
		}
	}
}
