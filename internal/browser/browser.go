// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package browser opens pages in headless Chromium, for tests of what people see: what a page shows, that nothing is wrong on its console, and that nothing
// is cut off at the width of a phone. A test on a machine without Chromium skips, and says so; scripts/test-servers.sh installs it.
package browser

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// shots is a folder for pictures of what tests looked at, for people.
var shots = flag.String("browser.shots", "", "write screenshots of pages into this folder")

// limit is for whatever a page is asked.
const limit = 30 * time.Second

// Browser is a Chromium that runs for a test.
type Browser struct {
	t   *testing.T
	ctx context.Context
}

// Start starts Chromium, which ends with the test. Without one the test is skipped.
func Start(t *testing.T) *Browser {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts Chromium")
	}
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("SKIPPED: there is no Chromium: scripts/test-servers.sh installs it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(folder(t)))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to run as root otherwise
	}
	allocator, release := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // returns when it has ended
		cancel()
		release()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("%s does not start: %v", path, err)
	}
	return &Browser{t, ctx}
}

// folder is one for the browser's own files. Its processes may write there a moment longer than it runs.
func folder(t *testing.T) string {
	dir, err := os.MkdirTemp("", "epl-browser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 50 {
			if os.RemoveAll(dir) == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	return dir
}

// View is how a page is looked at.
type View struct {
	Width, Height int64
	Dark          bool
}

// The views that pages are tested in.
var (
	Desktop = View{1280, 900, false}
	Dark    = View{1280, 900, true}
	Phone   = View{400, 800, false}
)

// String names the view, for files.
func (v View) String() string {
	name := fmt.Sprint(v.Width)
	if v.Dark {
		name += "-dark"
	}
	return name
}

// Page is a page that is open.
type Page struct {
	t    *testing.T
	ctx  context.Context
	view View

	mu       sync.Mutex
	troubles []string // of the console
}

// Open opens an address in a tab of its own.
func (b *Browser) Open(url string, v View) *Page {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	b.t.Cleanup(cancel)
	p := &Page{t: b.t, ctx: ctx, view: v}
	said := chromedp.Console(ctx)
	go p.listen(said)
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}}
	if v.Dark {
		media.Features[0].Value = "dark"
	}
	p.do(chromedp.EmulateViewport(v.Width, v.Height), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, media)
		return err
	}), chromedp.Navigate(url))
	return p
}

// listen notes what the console has to say.
func (p *Page) listen(said iter.Seq2[chromedp.ConsoleMessage, error]) {
	for m, err := range said {
		if err != nil {
			return
		}
		switch m.Type {
		case chromedp.ConsoleWarning, chromedp.ConsoleError, chromedp.ConsoleException:
			p.mu.Lock()
			p.troubles = append(p.troubles, fmt.Sprintf("%s (%s, line %d)", m, m.URL, m.Line+1))
			p.mu.Unlock()
		}
	}
}

func (p *Page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ask(p, chromedp.Steps(actions...))
}

// ask does something in the page, and waits for its result.
func ask[T any](p *Page, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatalf("the browser: %v; its console says %q", err, p.Console())
	}
	return value
}

// Eval is the value of an expression in the page.
func Eval[T any](p *Page, expression string) T {
	p.t.Helper()
	return ask(p, chromedp.Evaluate[T](expression))
}

// Await waits until an expression is true in the page.
func (p *Page) Await(expression string) {
	p.t.Helper()
	for deadline := time.Now().Add(limit); !Eval[bool](p, "!!("+expression+")"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("it does not come true: %s; the page says:\n%s\nits console: %q", expression, p.Text(), p.Console())
		}
	}
}

// Click clicks what a selector finds first.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

// Text is what a person reads.
func (p *Page) Text() string { return Eval[string](p, "document.body.innerText") }

// Console is what was wrong, as the console says.
func (p *Page) Console() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.troubles...)
}

// Check fails the test if the console has complained, or if the page is wider than the window, and takes a picture of it.
func (p *Page) Check(name string) {
	p.t.Helper()
	if wide := Eval[int](p, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide > 0 {
		p.t.Errorf("%s: the page is %d pixels wider than the window of %d: %s", name, wide, p.view.Width, Eval[string](p, widest))
	}
	if *shots != "" {
		picture := ask(p, chromedp.FullScreenshot(100))
		if err := os.MkdirAll(*shots, 0o755); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(*shots, name+"-"+p.view.String()+".png"), picture, 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	if all := p.Console(); len(all) > 0 {
		p.t.Errorf("%s: the console says %q", name, all)
	}
}

// widest names what reaches past the window.
const widest = `[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, .picture, svg"))
	.slice(0, 5).map(e => e.tagName + "." + e.className + " " + e.textContent.slice(0, 30)).join("; ")`
