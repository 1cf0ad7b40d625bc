// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"
	"testing"

	"github.com/easyparallel/epl/internal/browser"
)

// The page as a person sees it, of a job of 8 workers with 8 devices each: on a screen, on a phone, in the dark.
func TestTheDashboardInABrowser(t *testing.T) {
	b := browser.Start(t)
	s := started(t, Options{Title: "train <b>gpt</b>", Logs: true})
	play(s, 8, 8, 400)
	for _, v := range []browser.View{browser.Desktop, browser.Phone, browser.Dark} {
		p := b.Open(s.URL(), v)
		p.Await(`document.querySelectorAll(".device").length == 64 && document.querySelector("#timeline canvas") && document.querySelector("#status.live")`)
		for what, want := range map[string]string{
			`document.querySelectorAll("#values .chart").length`: "3",
			`document.querySelectorAll("#speed .chart").length`:  "5",
			`document.querySelectorAll("#plan .cell").length`:    "64",
			`document.querySelectorAll("#notices li").length`:    "2",
			`document.querySelectorAll("#values .bad").length`:   "1", // a loss that is no number
			`document.querySelectorAll("b b").length`:            "0",
			`document.querySelector("#log-worker").length`:       "8",
		} {
			if got := browser.Eval[string](p, "String("+what+")"); got != want {
				t.Errorf("%s: %s is %s, want %s", v, what, got, want)
			}
		}
		text := p.Text()
		for _, want := range []string{"train <b>gpt</b>", "2.06 M", "41 %", "silent for", "saving for", "was killed by signal 9", "with <b>markup</b> & more", "exposed communication"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: it does not say %q", v, want)
			}
		}
		p.Check("dashboard-8x8")
	}
}

// What happens is on the page at once, also after the connection was lost; the end is said.
func TestTheDashboardFollowsTheJob(t *testing.T) {
	b := browser.Start(t)
	s := started(t, Options{Title: "train"})
	p := b.Open(s.URL(), browser.Desktop)
	p.Await(`document.querySelector("#status.live")`)
	if text := p.Text(); !strings.Contains(text, "Nothing yet") || strings.Contains(text, "Logs") {
		t.Error(text)
	}
	p.Check("dashboard-empty")
	for n := range int64(5) {
		s.Put(numbered(n+1, 1/float64(n+1)))
	}
	p.Await(`document.querySelector("#values .chart b")?.textContent == "0.2"`)
	p.Await(`document.querySelectorAll(".device").length == 1 && document.querySelector("#part-legend").innerText.includes("computing 60 %")`)
	s.Put(Event{Notice: &Notice{1, Failure, "worker 0 exited with status 3"}})
	p.Await(`!document.querySelector("#alert").hidden && document.querySelector("#alert").textContent.includes("status 3")`)
	p.Check("dashboard-small")
	s.Close()
	p.Await(`document.querySelector("#status").textContent.includes("the job has ended")`)
	p.Check("dashboard-ended")
}
