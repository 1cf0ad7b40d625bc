// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/easyparallel/epl/internal/jobtest"
)

// Events go through a pipe in their order; a sender whose launcher does not read does not wait.
func TestEventsGoThroughAPipe(t *testing.T) {
	jobtest.NoLeak(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	x := newSender(w)
	var got []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		Receive(r, func(text []byte) {
			e, err := Decode(text)
			if err != nil {
				t.Error(err)
				return
			}
			got = append(got, e.Log)
		})
	}()
	for i := range 20 {
		x.Put(Event{Log: fmt.Sprint("line ", i)})
	}
	x.Close()
	<-done
	if len(got) != 20 || got[0] != "line 0" || got[19] != "line 19" {
		t.Error(got)
	}
}

func TestALauncherThatDoesNotReadHoldsUpNobody(t *testing.T) {
	jobtest.NoLeak(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	x := newSender(w)
	for range 10 * queued {
		x.Put(Event{Log: strings.Repeat("x", 10_000)})
	}
	x.Close()
	x.Put(Event{Log: "late"})
}

func TestWhatIsNoEventIsSkipped(t *testing.T) {
	var got []string
	Receive(strings.NewReader("nonsense\n{\"log\":\"a\"}\n"+strings.Repeat("x", mostEvent+10)+"\n{\"log\":\"b\"}\n{\"log"), func(text []byte) { got = append(got, string(text)) })
	if len(got) != 2 || got[1] != `{"log":"b"}` {
		t.Errorf("%.100q", got)
	}
}

// A number of a file that has become another one is not written to.
func TestAPipeThatIsNotThereIsRefused(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	value, err := Pipe(int(file.Fd()), w)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{value, "1:2", "x", "3", "9999:1"} {
		if _, err := NewSender(v); err == nil {
			t.Errorf("%q is taken", v)
		} else {
			jobtest.WantError(t, err, Env)
		}
	}
	if _, err := Pipe(3, file); err == nil {
		t.Error("a file is taken for a pipe")
	}
}
