// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

func started(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Address == "" {
		o.Address = "127.0.0.1:0"
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// stream is what a browser hears.
type stream struct {
	t      *testing.T
	answer *http.Response
	lines  *bufio.Scanner
}

// listen connects as a browser that has had an update.
func listenTo(t *testing.T, s *Server, last string) *stream {
	t.Helper()
	q, err := http.NewRequest("GET", strings.Split(s.URL(), "?")[0]+"events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		q.Header.Set("Last-Event-ID", last)
	}
	if s.token != "" {
		q.Header.Set("Authorization", "Bearer "+s.token)
	}
	answer, err := (&http.Client{Timeout: 20 * time.Second}).Do(q)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(answer.Status, answer.Header)
	}
	x := &stream{t, answer, bufio.NewScanner(answer.Body)}
	x.lines.Buffer(nil, 16<<20)
	t.Cleanup(func() { answer.Body.Close() })
	return x
}

// next is the next update, and its ID.
func (x *stream) next() (u update, id string) {
	x.t.Helper()
	for x.lines.Scan() {
		name, value, _ := strings.Cut(x.lines.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "data":
			if err := json.Unmarshal([]byte(value), &u); err != nil {
				x.t.Fatal(err)
			}
			return u, id
		}
	}
	x.t.Fatal("the stream has ended: ", x.lines.Err())
	return u, id
}

// numbered is a step of the first worker.
func numbered(n int64, loss float64) Event {
	return Event{Step: &Step{Number: n, Time: 1e12 + n*1000, Seconds: 0.5, Samples: 64, Values: map[string]Number{"Loss": Number(loss)},
		Devices: []Device{{Rank: 0, Parts: &Parts{Compute: 0.3, Exposed: 0.1, Waiting: 0.05, Data: 0.02, Other: 0.03}, Peak: 3 << 20}}}}
}

// play tells a server of a job of many workers and devices that has trained for a while, has failed once, and goes on.
func play(s *Server, workers, each, steps int) {
	plan := &Plan{Program: "train", Seconds: 0.4, Samples: 512, Page: "<!doctype html><title>plan</title><h1>The whole plan</h1><script>document.title = 'bad'</script>",
		Summary: [][2]string{{"plan", fmt.Sprintf("%d devices = %d model replicas of 4 devices in 4 stages (PreferBackward); a step takes 64 batches", workers*each, workers*each/4)},
			{"memory", "at most 20.1 GiB on a device: weights 6.1 GiB, activations 9.8 GiB, optimizer 4.1 GiB"}, {"traffic", "a step of a replica: 1.4 GiB gradients merged in 12 buckets"}}}
	var states []Worker
	for w := range workers {
		state := Worker{Index: w, Host: fmt.Sprintf("node%d.cluster.example", w/2), State: Running, Step: int64(steps)}
		switch {
		case w == 2:
			state.State, state.Doing, state.Since = Busy, "saving", time.Now().Add(-7*time.Second).UnixMilli()
		case w == 5:
			state.State, state.Since = Silent, time.Now().Add(-12*time.Second).UnixMilli()
		}
		states = append(states, state)
		for d := range each {
			rank := w*each + d
			plan.Devices = append(plan.Devices, PlanDevice{Rank: rank, Worker: w, Replica: rank / 4, Peak: 20 << 30, Limit: 32 << 30,
				Works: []Work{{rank % 4, fmt.Sprintf("stage %d", rank%4), ""}}})
		}
	}
	s.Put(Event{Plan: plan})
	s.Put(Event{Workers: states})
	s.Put(Event{Notice: &Notice{time.Now().Add(-10 * time.Minute).UnixMilli(), Failure, "worker 3 on node1 was killed by signal 9 (killed); it was training, after step 400"}})
	s.Put(Event{Notice: &Notice{time.Now().Add(-9 * time.Minute).UnixMilli(), Restart, "generation 1, of 8 workers, ended after step 400; restart 1 of 3 without a new checkpoint; the next one has 8, and goes on from the checkpoint of step 390"}})
	s.Put(Event{Generation: 2})
	for n := range int64(steps) {
		for w := range workers {
			step := &Step{Number: n + 1, Time: time.Now().UnixMilli() - (int64(steps)-n)*500, Seconds: 0.5 + 0.02*math.Sin(float64(n)/7)}
			for d := range each {
				rank := w*each + d
				wait := 0.04 + 0.02*float64(rank%4)
				step.Devices = append(step.Devices, Device{Rank: rank, Peak: int64(19+d%3) << 30, Uses: map[string]int64{"weights": 6 << 30, "activations": 10 << 30}, Sent: 1 << 30,
					Parts: &Parts{Compute: 0.36 - wait, Exposed: 0.06, Waiting: wait, Data: 0.02, Other: 0.03 + 0.02*math.Abs(math.Sin(float64(n)/9))}})
			}
			if w == 0 {
				step.Samples, step.Tokens, step.Flops, step.MFU = 1024/step.Seconds, 1024*1024/step.Seconds, 4.1e15, 0.41
				x := float64(n)
				step.Values = map[string]Number{"Loss": Number(11*math.Exp(-x/150) + 2.8 + 0.2*math.Sin(x)), "accuracy": Number(1 - math.Exp(-x/300)), "learning rate": Number(3e-4 * min(1, x/50))}
				if n == 77 {
					step.Values["Loss"] = Number(math.NaN())
				}
			}
			s.Put(Event{Worker: w, Step: step})
		}
	}
	for w := range workers {
		t := &Timeline{Step: int64(steps), Micro: 500_000, Names: []string{"forward of stage", "backward of stage", "all-reduce", "waiting", "inputs"}}
		for d := range each {
			stage := int64((w*each + d) % 4)
			row := Row{Rank: w*each + d, Bars: []Bar{{KindData, 0, 6000, 4, -1}, {KindWait, 6000, 10000 + stage*20000, 3, -1}}}
			at := 16000 + stage*20000
			for m := range int64(8) {
				row.Bars = append(row.Bars, Bar{KindForward, at, 17000, 0, m}, Bar{KindBackward, at + 17000, 32000, 1, m})
				at += 50000
			}
			row.Bars = append(row.Bars, Bar{KindCommunicate, 300000, 120000, 2, -1}, Bar{KindApply, at, 20000, 0, -1})
			t.Rows = append(t.Rows, row)
		}
		s.Put(Event{Worker: w, Timeline: t})
		for i := range 30 {
			s.Put(Event{Worker: w, Log: fmt.Sprintf("worker %d: step %d: something long enough to be wrapped on a small screen, with <b>markup</b> & more", w, i)})
		}
	}
}
