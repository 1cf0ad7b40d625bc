// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/easyparallel/epl/dashboard"
	"github.com/easyparallel/epl/internal/browser"
	"github.com/easyparallel/epl/launch"
)

// page is what a browser has been told of a job, to its end.
type page struct {
	losses    map[int64]float64
	devices   map[int]map[int]bool // by worker: the ranks that it told of
	parts     map[string]bool
	lines     map[int][]string
	states    map[int]map[string]bool // by worker: all that it had
	notices   []dashboard.Notice
	timelines map[int]bool
	plan      *dashboard.Plan
	restarts  int
	ended     bool
}

// follow reads the stream of a dashboard until the job has ended.
func follow(url string) (*page, error) {
	p := &page{losses: map[int64]float64{}, devices: map[int]map[int]bool{}, parts: map[string]bool{}, lines: map[int][]string{}, states: map[int]map[string]bool{}, timelines: map[int]bool{}}
	answer, err := (&http.Client{Timeout: time.Minute}).Get(url + "events")
	if err != nil {
		return p, err
	}
	defer answer.Body.Close()
	in := bufio.NewScanner(answer.Body)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		text, is := strings.CutPrefix(in.Text(), "data: ")
		if !is {
			continue
		}
		var u struct {
			Curves map[string]struct {
				Steps []int64
				Means []dashboard.Number
			}
			Points []struct {
				Name  string
				Step  int64
				Value dashboard.Number
			}
			Steps []struct {
				Worker int
				dashboard.Step
			}
			Plan     *dashboard.Plan
			Lines    map[int][]string
			Workers  []dashboard.Worker
			Notices  []dashboard.Notice
			Timeline map[int]*dashboard.Timeline
			Restarts int
			Ended    bool
		}
		if err := json.Unmarshal([]byte(text), &u); err != nil {
			return p, err
		}
		for i, step := range u.Curves["value/Loss"].Steps {
			p.losses[step] = float64(u.Curves["value/Loss"].Means[i])
		}
		for _, x := range u.Points {
			if x.Name == "value/Loss" {
				p.losses[x.Step] = float64(x.Value)
			}
			p.parts[x.Name] = true
		}
		for _, s := range u.Steps {
			if p.devices[s.Worker] == nil {
				p.devices[s.Worker] = map[int]bool{}
			}
			for _, d := range s.Devices {
				p.devices[s.Worker][d.Rank] = d.Peak > 0 && d.Parts != nil
			}
		}
		for w, lines := range u.Lines {
			p.lines[w] = append(p.lines[w], lines...)
		}
		for _, w := range u.Workers {
			if p.states[w.Index] == nil {
				p.states[w.Index] = map[string]bool{}
			}
			p.states[w.Index][w.State] = true
		}
		for w := range u.Timeline {
			p.timelines[w] = true
		}
		if u.Plan != nil {
			p.plan = u.Plan
		}
		p.notices, p.restarts, p.ended = append(p.notices, u.Notices...), max(p.restarts, u.Restarts), p.ended || u.Ended
	}
	return p, in.Err()
}

// shown runs a job with a dashboard, and returns what a browser was told of it.
func (j job) shown(t *testing.T) (status int, said string, p *page) {
	t.Helper()
	var followed sync.WaitGroup
	var failed error
	hear := j.hear
	j.hear = func(line string) {
		if url, is := strings.CutPrefix(line, "epl-launch: dashboard: "); is {
			followed.Go(func() { p, failed = follow(url) })
		}
		if hear != nil {
			hear(line)
		}
	}
	j.Dashboard, j.DashboardAddress = true, "127.0.0.1:0"
	status, said = j.run(t)
	if followed.Wait(); failed != nil || p == nil || !p.ended {
		t.Fatalf("the dashboard: %v, %+v\n%s", failed, p, said)
	}
	return status, said, p
}

// A launcher shows all workers of a job: the losses, the devices of each, their states and lines, the plan and the end.
func TestADashboardShowsAllWorkers(t *testing.T) {
	for _, name := range []string{"data parallel", "pipeline", "by ssh"} {
		t.Run(name, func(t *testing.T) {
			j := plans[name]
			j.Steps, j.Pause, j.Dir, j.Every, j.Workers, j.DevicesPerWorker = 12, 100*time.Millisecond, t.TempDir(), 100, 2, 2
			switch name {
			case "pipeline":
				j.DevicesPerWorker = 1 // a stage each
			case "by ssh":
				ssh := filepath.Join(t.TempDir(), "ssh")
				if err := os.WriteFile(ssh, []byte("#!/bin/sh\nshift\nexec sh -c \"$*\"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				text, err := json.Marshal(j.work)
				if err != nil {
					t.Fatal(err)
				}
				t.Setenv(workVariable, string(text)) // as on the other machines
				j.Hosts, j.Port, j.SSH = "127.0.0.1,localhost", freePort(t), []string{ssh}
			}
			j.showsAll(t)
		})
	}
}

func (j job) showsAll(t *testing.T) {
	status, said, p := j.shown(t)
	if status != 0 {
		t.Fatal(said)
	}
	if len(p.losses) < 3 {
		t.Errorf("losses of steps %v", p.losses)
	}
	for step, loss := range p.losses {
		want := 0.0
		_, rest, _ := strings.Cut(said, fmt.Sprintf("] step %d loss ", step))
		if _, err := fmt.Sscan(rest, &want); err != nil || math.Abs(loss-want) > 1e-5*math.Abs(want) {
			t.Errorf("step %d: a loss of %g, want %g: %v", step, loss, want, err)
		}
	}
	for w := range 2 {
		if d := p.devices[w]; len(d) != j.DevicesPerWorker || !d[j.DevicesPerWorker*w] || !d[j.DevicesPerWorker*(w+1)-1] {
			t.Errorf("worker %d has told of devices %v", w, d)
		}
		if !p.states[w][dashboard.Running] || !p.states[w][dashboard.Finished] || p.states[w][dashboard.Failed] {
			t.Errorf("worker %d was %v", w, p.states[w])
		}
		if len(p.lines[w]) == 0 || !strings.HasPrefix(p.lines[w][0], "pid ") || !p.timelines[w] {
			t.Errorf("worker %d printed %q, and has a timeline: %v", w, p.lines[w], p.timelines[w])
		}
	}
	if !p.parts["part/exposed"] || !p.parts["epl/samples per second"] {
		t.Errorf("there are %v", p.parts)
	}
	if n := 2 * j.DevicesPerWorker; p.plan == nil || len(p.plan.Devices) != n || p.plan.Devices[n-1].Worker != 1 || p.plan.Devices[n-1].Peak <= 0 {
		t.Errorf("the plan is %+v", p.plan)
	}
	if n := len(p.notices); n == 0 || p.notices[n-1].Kind != dashboard.End || p.notices[n-1].Text != "all workers ended well" {
		t.Errorf("it says %v", p.notices)
	}
	if strings.Contains(said, "the dashboard shows no steps") {
		t.Error(said)
	}
}

// What goes wrong is on the page, and that the workers were started anew.
func TestADashboardShowsFailuresAndRestarts(t *testing.T) {
	killed := false
	j := job{work: work{Steps: 16, Pause: 50 * time.Millisecond, Dir: t.TempDir(), Every: 3}, Options: launch.Options{Workers: 2, MinWorkers: 2, MaxRestarts: 3}}
	j.hear = func(line string) {
		var pid int
		if n, _ := fmt.Sscanf(line, "[1] pid %d", &pid); n == 1 && !killed {
			killed = true
			time.AfterFunc(500*time.Millisecond, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		}
	}
	status, said, p := j.shown(t)
	if status != 0 || p.restarts != 1 {
		t.Fatalf("status %d, %d restarts\n%s", status, p.restarts, said)
	}
	var kinds []string
	for _, n := range p.notices {
		if n.Kind != dashboard.Note {
			kinds = append(kinds, n.Kind)
		}
	}
	if all := strings.Join(kinds, " "); !strings.HasSuffix(all, "failure restart end") {
		t.Errorf("it says %v", p.notices)
	}
	if len(p.losses) < 3 {
		t.Errorf("losses of steps %v", p.losses)
	}
}

// A program that knows nothing of EPL has a page, too, with its lines and how it ended.
func TestADashboardOfAnyProgram(t *testing.T) {
	out := &output{}
	done := make(chan *page, 1)
	out.hear = func(line string) {
		if url, is := strings.CutPrefix(line, "epl-launch: dashboard: "); is {
			go func() {
				p, _ := follow(url)
				done <- p
			}()
		}
	}
	status, err := launch.Run(t.Context(), launch.Options{Command: []string{"sh", "-c", "sleep 1; echo nonsense >&3; echo hello; exit 3"}, Workers: 2, Dashboard: true, DashboardAddress: "127.0.0.1:0",
		Environ: append(clean(), "EPL_DASHBOARD=7:7"), Stdout: out, Stderr: out})
	if err != nil || status != 3 {
		t.Fatal(status, err, out.text)
	}
	p := <-done
	if !p.ended || !p.states[0][dashboard.Failed] && !p.states[1][dashboard.Failed] || len(p.lines[0])+len(p.lines[1]) == 0 {
		t.Errorf("%+v", p)
	}
}

// The page of a real job in a browser, from its first step to its end, which comes when all has been seen.
func TestADashboardOfAJobInABrowser(t *testing.T) {
	b := browser.Start(t)
	url, done, signals := make(chan string, 1), make(chan string, 1), make(chan os.Signal, 1)
	j := job{work: work{Steps: 5000, Pause: 100 * time.Millisecond, Dir: t.TempDir(), Every: 10_000},
		Options: launch.Options{Workers: 2, DevicesPerWorker: 2, Dashboard: true, DashboardAddress: "127.0.0.1:0", Signals: signals}}
	j.hear = func(line string) {
		if at, is := strings.CutPrefix(line, "epl-launch: dashboard: "); is {
			url <- at
		}
	}
	go func() {
		_, said := j.run(t)
		done <- said
	}()
	p := b.Open(<-url, browser.Desktop)
	p.Await(`document.querySelectorAll(".device").length == 4 && document.querySelector("#values .chart") && document.querySelector("#timeline canvas") && document.querySelectorAll("#plan .cell").length == 4`)
	p.Await(`document.querySelectorAll(".state.running").length == 2 && document.querySelector("#lines").textContent.includes("loss")`)
	signals <- syscall.SIGTERM
	p.Await(`document.querySelector("#status").textContent.includes("the job has ended") && document.querySelector("#notices").textContent.includes("status 143")`)
	p.Check("dashboard-job")
	<-done
}
