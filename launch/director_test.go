// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/easyparallel/epl/rendezvous"
)

// slowHub is a crew of two workers, whose rendezvous says why the job stops only after both have ended.
type slowHub struct{ d *director }

func (h slowHub) start() error {
	go func() {
		h.d.take(report{Exit: &exit{Worker: 1, Signal: 9}})
		h.d.take(report{Exit: &exit{Worker: 0, Code: 1}})
		h.d.take(report{Failed: "worker 1 is gone", Blamed: []int{1}})
	}()
	return nil
}
func (slowHub) signal(syscall.Signal)             {}
func (slowHub) kill()                             {}
func (slowHub) serves() bool                      { return true }
func (slowHub) exited(int, string)                {}
func (slowHub) status() []rendezvous.WorkerStatus { return make([]rendezvous.WorkerStatus, 2) }
func (slowHub) finish()                           {}

func TestItIsSaidWhyAJobStopsAlsoIfAllWorkersHaveEnded(t *testing.T) {
	var out, err bytes.Buffer
	o := Options{Stdout: &out, Stderr: &err}
	d := newDirector(o)
	d.display, d.hosts = newDisplay(o), map[int]string{0: "here", 1: "here"}
	d.crews = []crew{slowHub{d}}
	if _, err := d.run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if want := "the job stops because of worker 1"; !strings.Contains(err.String(), want) {
		t.Errorf("it does not say %q:\n%s", want, &err)
	}
}
