// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/easyparallel/epl/internal/browser"
	"github.com/easyparallel/epl/trace"
)

// The page of a timeline, as a person sees it: on a screen, on a phone, and in the dark.
func TestThePageOfATimelineInABrowser(t *testing.T) {
	b := browser.Start(t)
	path := filepath.Join(t.TempDir(), "trace.html")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := small().WriteHTML(f, 1200); err != nil {
		t.Fatal(err)
	}
	for _, v := range []browser.View{browser.Desktop, browser.Phone, browser.Dark} {
		p := b.Open("file://"+path, v)
		p.Await(`document.querySelectorAll("svg.timeline rect").length > 4`)
		before := browser.Eval[string](p, `document.querySelector("svg.timeline").outerHTML`)
		p.Click("#in")
		if after := browser.Eval[string](p, `document.querySelector("svg.timeline").outerHTML`); after == before {
			t.Errorf("%s: the button to zoom in changes nothing", v)
		}
		p.Check("trace")
	}
}

func TestThePageOfAProfileInABrowser(t *testing.T) {
	b := browser.Start(t)
	path := filepath.Join(t.TempDir(), "profile.html")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	steps := replicas([2]float64{8, 8}, 40, 64, 9, 0)
	steps[0].SetPeak(trace.Peak{Device: 1, Bytes: 3 << 20, Held: []trace.Held{{Use: "activations", What: "Add", Line: "mlp/model.go:12", Tensors: 2, Bytes: 2 << 20}}})
	for i, n := range []int64{0, 2, 1, 0} {
		steps[0].NoteMemory(trace.Memory{Device: 1, At: ms(float64(2 * i)), Bytes: map[string]int64{"weights": 1 << 20, "activations": n << 20}})
		places := map[string]int64{"/body/dense": 1 << 20, "mlp/a_rather_long_name_of_a_file.go:1234": n << 19}
		for line := range 8 {
			places[fmt.Sprintf("mlp/model.go:%d", line)] = n << 15 << line / 2
		}
		steps[0].NoteSites(trace.Memory{Device: 1, At: ms(float64(2 * i)), Bytes: places})
	}
	if err := profile(t, steps).WriteHTML(f, steps[0], 1200); err != nil {
		t.Fatal(err)
	}
	for _, v := range []browser.View{browser.Desktop, browser.Phone, browser.Dark} {
		p := b.Open("file://"+path, v)
		p.Await(`document.querySelectorAll("svg.timeline rect").length > 4`)
		if text := p.Text(); !strings.Contains(text, "many tiny messages") || !strings.Contains(text, "DotGeneral 64×64×64") {
			t.Errorf("%s: the page says\n%s", v, text)
		}
		// The flame graph leads to the op by the scopes and the line of the model.
		labels := browser.Eval[string](p, `[...document.querySelectorAll("svg.flame text")].map(t => t.textContent).join(" ")`)
		if want := "train communication that nothing hides backward body body dense mlp/model.go:12 DotGeneral 64×64×64"; !strings.HasPrefix(labels, want) {
			t.Errorf("%s: the flame graph has %q", v, labels)
		}
		// By use there are two areas; by place those that have most, and one for the others.
		areas := browser.Eval[string](p, `[...document.querySelectorAll("svg.memory")].map(s => s.querySelectorAll("path").length + " " + s.getAttribute("aria-label")).join("; ")`)
		if want := "2 Memory over the step, by use; 7 Memory over the step, by place in the model"; areas != want {
			t.Errorf("%s: the memory has %s, not %s", v, areas, want)
		}
		p.Check("profile")
	}
}

// cluster is a step of 8 workers with 8 devices each: 8 stages, of which each worker has a model replica.
func cluster() *trace.Step {
	const stages, replicas, micro = 8, 8, 16
	one := &trace.Step{Pipeline: trace.Pipeline{Stages: stages}}
	var devices []order
	for d := range stages {
		devices = append(devices, oneForwardOneBackward(stages, d, micro))
	}
	play(one, 1, 2, 0, devices...)
	s := &trace.Step{Program: "train", Number: 3, Workers: replicas,
		Pipeline: trace.Pipeline{Strategy: "PreferBackward", Stages: stages, Groups: stages, MicroBatches: micro, Replicas: replicas}}
	for r := range replicas {
		for _, e := range one.Events() {
			e.Task.Replica, e.Flow, e.Device = r, fmt.Sprint(e.Flow, r), e.Device+r*stages
			s.Note(e)
		}
		for d := range stages {
			s.Note(trace.Event{Device: r*stages + d, Lane: 1, Kind: trace.Communicate, Op: "all-reduce", Name: "bucket 0", Start: ms(69), End: ms(72), Bytes: 1 << 24})
		}
	}
	return s
}

// A large cluster stays readable: a row for each device, no two of which overlap, with labels as large as other text.
func TestThePagesOfALargeClusterInABrowser(t *testing.T) {
	b := browser.Start(t)
	dir, step := t.TempDir(), cluster()
	pages := map[string]func(f *os.File) error{
		"trace-64":   func(f *os.File) error { return step.WriteHTML(f, 1200) },
		"profile-64": func(f *os.File) error { return profile(t, []*trace.Step{step}).WriteHTML(f, step, 1200) },
	}
	for name, write := range pages {
		path := filepath.Join(dir, name+".html")
		f, err := os.Create(path)
		if err == nil {
			err = write(f)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []browser.View{browser.Desktop, browser.Phone, browser.Dark} {
			p := b.Open("file://"+path, v)
			p.Await(`document.querySelectorAll("svg.timeline text.row").length == 64`)
			if closest := browser.Eval[float64](p, `(() => {
				const tops = [...document.querySelectorAll("svg.timeline text.row")].map(e => e.getBoundingClientRect()).sort((a, b) => a.top - b.top);
				return Math.min(...tops.slice(1).map((r, i) => r.top - tops[i].top - tops[i].height));
			})()`); closest < 0 {
				t.Errorf("%s, %s: labels of devices overlap by %g pixels", name, v, -closest)
			}
			p.Check(name)
			if v == browser.Phone {
				labelsStay(t, p, name, "svg.timeline text.row")
				if name == "trace-64" {
					labelsStay(t, p, name, "th[scope=row]")
				}
			}
		}
	}
}

// labelsStay scrolls the timeline, or a table, sideways: whose row it is stays in sight, above what moves.
func labelsStay(t *testing.T, p *browser.Page, name, label string) {
	t.Helper()
	p.Await(fmt.Sprintf(`(() => {
		const around = document.querySelector("%s").closest(".scroll");
		around.scrollLeft = 200;
		return around.scrollLeft > 50;
	})()`, label))
	p.Await(fmt.Sprintf(`document.querySelector("%s").getBoundingClientRect().left >= 0`, label))
	p.Check(name + "-scrolled")
	if !browser.Eval[bool](p, fmt.Sprintf(`(() => {
		const label = document.querySelector("%s");
		label.scrollIntoView({block: "center", inline: "nearest"});
		const box = label.getBoundingClientRect();
		return !!document.elementFromPoint(box.left + 4, (box.top + box.bottom) / 2).closest(".rows, th");
	})()`, label)) {
		t.Errorf("%s: labels, %s, are covered", name, label)
	}
}
