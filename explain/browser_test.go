// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/easyparallel/epl/internal/browser"
)

// The page of a program with its plan, which is also what a dump has, as a person sees it.
func TestThePageOfAPlanInABrowser(t *testing.T) {
	b := browser.Start(t)
	c := plannedOn(t, 4, nil, twoStages)
	c.Number = 7
	var page bytes.Buffer
	if err := c.WritePage(&page, []Stage{{"recorded", "what GoMLX built", "", c.Recorded}, {"final", "after all passes", "", c.Final}}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plan.html")
	if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	page.Reset()
	if err := c.WritePlan(&page); err != nil {
		t.Fatal(err)
	}
	glance := filepath.Join(t.TempDir(), "glance.html")
	if err := os.WriteFile(glance, page.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, v := range []browser.View{browser.Phone, browser.Dark} { // what a dashboard links to
		p := b.Open("file://"+glance, v)
		p.Await(`document.querySelectorAll(".hosts .devices li").length == 8`)
		p.Check("glance")
	}
	for _, v := range []browser.View{browser.Desktop, browser.Phone, browser.Dark} {
		p := b.Open("file://"+path, v)
		p.Await(`document.querySelectorAll(".hosts .devices li").length == 8`)
		p.Await(`document.querySelectorAll("#columns .line").length > 8`) // what page.js shows of the program
		p.Check("plan")
	}
}
