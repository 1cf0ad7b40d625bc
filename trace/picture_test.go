// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"html"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/trace"
)

func text(t *testing.T, s *trace.Step) string {
	t.Helper()
	var w bytes.Buffer
	if err := s.WriteText(&w, 100); err != nil {
		t.Fatal(err)
	}
	return w.String()
}

func svg(t *testing.T, s *trace.Step) string {
	t.Helper()
	var w bytes.Buffer
	if err := s.WriteSVG(&w, 1000); err != nil {
		t.Fatal(err)
	}
	return w.String()
}

func page(t *testing.T, s *trace.Step) string {
	t.Helper()
	var w bytes.Buffer
	if err := s.WriteHTML(&w, 1000); err != nil {
		t.Fatal(err)
	}
	return w.String()
}

// elements parses XML, so that what a browser would refuse fails here, and counts its elements.
func elements(t *testing.T, text string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return n
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if e, ok := token.(xml.StartElement); ok {
			n[e.Name.Local]++
		}
	}
}

func TestThePictureAndTheTextOfASmallStep(t *testing.T) {
	golden(t, "small.svg", svg(t, small()))
	golden(t, "small.txt", text(t, small()))
}

func TestThePictureHasARowForEveryDeviceAndABarForEveryEvent(t *testing.T) {
	s := small()
	n := elements(t, svg(t, s))
	const paper, inLegend = 1, 7
	if n["title"] != len(s.Events()) || n["rect"] != len(s.Events())+paper+inLegend {
		t.Errorf("%v elements for %d events", n, len(s.Events()))
	}
	for _, want := range []string{
		">train, step 3: PreferBackward, 2 stages, 3 micro-batches<", ">bubble 25.0% measured, 25.0% ideal<",
		">replica 0 · stage 0 · device 0<", ">replica 0 · stage 1 · device 1<", "backward of micro-batch 2, stage 1\nb2\n2.00 ms, from 8.50 ms", "1048576 bytes",
	} {
		if !strings.Contains(svg(t, s), want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}

func TestAProgramOfOneStageNamesNoStages(t *testing.T) {
	s := &trace.Step{Program: "train", Number: 1, Pipeline: trace.Pipeline{Strategy: "PreferBackward", Stages: 1, Groups: 1, MicroBatches: 1, Replicas: 2}}
	for d := range 2 {
		s.Note(trace.Event{Device: d, Kind: trace.Run, Start: ms(0), End: ms(2), Task: trace.Task{Kind: trace.Forward, Replica: d}})
		s.Note(trace.Event{Device: d, Kind: trace.Run, Start: ms(2), End: ms(4), Task: trace.Task{Kind: trace.Backward, Replica: d}})
		s.Note(trace.Event{Device: d, Kind: trace.Run, Start: ms(4), End: ms(5), Task: trace.Task{Kind: trace.Apply, Replica: d, Micro: -1}})
	}
	got := text(t, s)
	for _, want := range []string{"train, step 1: 1 stage, 1 micro-batch\n\n", "\nreplica 1 · device 1 |F0---", "--B0==", "F forward, B backward"} {
		if !strings.Contains(got, want) {
			t.Errorf("the text lacks %q:\n%s", want, got)
		}
	}
}

func TestATimelineWithoutTasksIsShownToo(t *testing.T) {
	s := &trace.Step{Program: "train", Number: 1}
	s.Note(trace.Event{Device: 3, Kind: trace.Run, Name: "segment 0", Start: ms(0), End: ms(1)})
	for _, got := range []string{text(t, s), svg(t, s), page(t, s)} {
		if !strings.Contains(got, "device 3") || strings.Contains(got, "NaN") || strings.Contains(got, "bubble -") {
			t.Errorf("got:\n%s", got)
		}
	}
	empty := &trace.Step{Program: "nothing"}
	elements(t, svg(t, empty))
	text(t, empty)
	page(t, empty)
}

const hostile = "</title></script><img src=x onerror=alert(1)>\x1b[2J\x00\u202e\""

func TestHostileNamesStayText(t *testing.T) {
	s := small()
	s.Program, s.Pipeline.Strategy = hostile, hostile
	s.Note(trace.Event{Device: 0, Kind: trace.Run, Name: hostile, Start: ms(1), End: ms(2)})
	if n := elements(t, svg(t, s)); n["img"]+n["script"] > 0 {
		t.Errorf("elements %v", n)
	}
	for name, got := range map[string]string{"picture": svg(t, s), "page": page(t, s), "text": text(t, s)} {
		if name != "text" && strings.Contains(got, "<img") {
			t.Errorf("the %s has markup of a name", name)
		}
		if strings.ContainsAny(got, "\x1b\x00\u202e") {
			t.Errorf("the %s has control characters of a name", name)
		}
	}
	if n := strings.Count(page(t, s), "</script>"); n != 1 {
		t.Errorf("%d scripts end", n)
	}
}

func TestThePageNeedsNothingFromOutsideAndRunsNoScriptButItsOwn(t *testing.T) {
	got := page(t, small())
	scripts := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(got, -1)
	if len(scripts) != 1 {
		t.Fatalf("%d scripts", len(scripts))
	}
	hash := sha256.Sum256([]byte(scripts[0][1]))
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(got)
	want := fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'", base64.StdEncoding.EncodeToString(hash[:]))
	if policy == nil || html.UnescapeString(policy[1]) != want {
		t.Errorf("policy %q, want %q", policy, want)
	}
	for _, bad := range []string{" src=", "@import", "<link", "innerHTML"} {
		if strings.Contains(got, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if urls := regexp.MustCompile(`url\([^)]*\)|https?://[^"]*`).FindAllString(got, -1); !slices.Equal(urls, []string{"http://www.w3.org/2000/svg", "url(#hatch)"}) {
		t.Errorf("addresses in the page: %q", urls) // neither is fetched
	}
	for _, want := range []string{"<b>25.0%</b> bubble, measured", "<b>2</b> devices", "<b>1</b> model replica<", `id="in"`, "replica 0 · stage 1 · device 1</th>"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestNumbersOfMicroBatchesAreLeftOutWhereTheyDoNotFit(t *testing.T) {
	s := &trace.Step{Pipeline: trace.Pipeline{Stages: 1}}
	for m := range 1000 {
		s.Note(trace.Event{Kind: trace.Run, Start: ms(float64(m)), End: ms(float64(m + 1)), Task: trace.Task{Kind: trace.Instance, Micro: m}})
	}
	if got := svg(t, s); strings.Contains(got, ">999<") {
		t.Error("the picture has a number in a bar of one pixel")
	}
	if got := page(t, s); !strings.Contains(got, `display="none">999<`) {
		t.Error("the page has no number to show after zooming in")
	}
}
