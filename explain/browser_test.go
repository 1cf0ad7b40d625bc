// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/easyparallel/epl/internal/browser"
)

// The page of a program with its plan, which is also what a dump has, as a person sees it: on 4 workers with 2 devices each, and on 8 with 8.
func TestThePageOfAPlanInABrowser(t *testing.T) {
	b := browser.Start(t)
	for _, c := range []struct {
		name        string
		hosts, each int
	}{{"", 4, 2}, {"-64", 8, 8}} {
		plan, glance := planPages(t, plannedOnHosts(t, c.hosts, c.each, nil, twoStages))
		devices := fmt.Sprintf(`document.querySelectorAll(".hosts .devices li").length == %d`, c.hosts*c.each)
		for _, v := range []browser.View{browser.Phone, browser.Dark} { // what a dashboard links to
			p := b.Open(glance, v)
			p.Await(devices)
			p.Check("glance" + c.name)
			devicesAreReadable(t, p)
		}
		for _, v := range []browser.View{browser.Desktop, browser.Phone, browser.Dark} {
			p := b.Open(plan, v)
			p.Await(devices)
			p.Await(`document.querySelectorAll("#columns .line").length > 8`) // what page.js shows of the program
			p.Check("plan" + c.name)
			devicesAreReadable(t, p)
		}
	}
}

// planPages writes the pages of a program, and returns their addresses.
func planPages(t *testing.T, c *Program) (plan, glance string) {
	t.Helper()
	c.Number = 7
	address := func(name string, write func(w io.Writer) error) string {
		var page bytes.Buffer
		if err := write(&page); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return "file://" + path
	}
	plan = address("plan.html", func(w io.Writer) error {
		return c.WritePage(w, []Stage{{"recorded", "what GoMLX built", "", c.Recorded}, {"final", "after all passes", "", c.Final}})
	})
	return plan, address("glance.html", c.WritePlan)
}

// devicesAreReadable tells whether what is written of each device is in sight: not cut off, not over the next, and as large as other text.
func devicesAreReadable(t *testing.T, p *browser.Page) {
	t.Helper()
	if wrong := browser.Eval[string](p, `(() => {
		const all = [...document.querySelectorAll(".hosts .devices li")], boxes = all.map(e => e.getBoundingClientRect());
		for (const [i, e] of all.entries()) {
			const a = boxes[i];
			if (e.scrollWidth > e.clientWidth + 1) return e.innerText + " is cut off";
			if (parseFloat(getComputedStyle(e).fontSize) < 11) return e.innerText + " is too small";
			const j = boxes.findIndex((b, j) => j > i && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1);
			if (j >= 0) return e.innerText + " overlaps " + all[j].innerText;
		}
		return "";
	})()`); wrong != "" {
		t.Error(wrong)
	}
}
