// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// Workers are this test binary, started again.
func TestMain(m *testing.M) {
	if played() {
		return
	}
	os.Exit(m.Run())
}

func onCPUs(only string) options {
	return options{backend: "go", only: regexp.MustCompile(only), timeout: 2 * time.Minute, parallel: 1, count: 1, oneGPU: true}
}

func TestTheTableOnCPUs(t *testing.T) {
	var out bytes.Buffer
	right := onCPUs(`^2 processes: (ZeRO v1|Split\(2\)|moe.*|the last .*|different .*)$`).table(&out)
	if !right || !strings.Contains(out.String(), "5 of 5 comparisons are right") {
		t.Errorf("got %s", &out)
	}
	for _, words := range []string{"reduce-scatter", "all-to-all", "worker 1 (", "is gone", "do not agree on training program 1"} {
		if !strings.Contains(out.String(), words) {
			t.Errorf("it does not say %q: %s", words, &out)
		}
	}
}

// What is compared differs enough if a step is wrong: here one that has other samples.
func TestWrongWeightsAreSeen(t *testing.T) {
	for _, name := range []string{"2 processes: data parallelism", "2 processes: data parallelism, bfloat16"} {
		x, _ := find(name)
		want, err := x.alone().train(part{Backend: "go", Batches: 2, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		got, err := x.alone().train(part{Backend: "go", Batches: 1, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if losses, weights, err := want.compare(got); err != nil || weights < 5*x.tolerance() {
			t.Errorf("%s: losses differ by %g, weights by %g, %v", name, losses, weights, err)
		}
	}
}

// Every plan of the table on GPUs up to XLA itself, in one process: those run segments together that should, and weights are those of one device.
func TestGPUsRunSegmentsTogetherInEveryPlanOfTheTable(t *testing.T) {
	alone := map[string]*result{} // by the name of what one device does
	for i, x := range tries() {
		if x.does != "" || testing.Short() && i%5 != 0 {
			continue
		}
		t.Run(x.String(), func(t *testing.T) {
			f := pjrttest.New(t, pjrttest.Options{Devices: x.processes})
			exec.Register("xla", func(string) (exec.Kind, error) { return xlatest.Kind(t, f, xla.Options{}), nil })
			got, err := x.train(part{Backend: "xla:fake", Timeout: time.Minute}, epl.WithLocalDevices(x.processes))
			if err != nil {
				t.Fatal(err)
			}
			one := x.alone()
			want := alone[one.name]
			if want == nil {
				if want, err = one.train(part{Backend: "go", Batches: x.batches(), Timeout: time.Minute}); err != nil {
					t.Fatal(err)
				}
				alone[one.name] = want
			}
			if losses, weights, err := want.compare(got); err != nil || !(max(losses, weights) <= x.tolerance()) {
				t.Errorf("losses differ by %g, weights by %g, %v", losses, weights, err)
			}
			inside, host := communication([]*result{got})
			if (inside != "") != (x.by == byNCCL) {
				t.Errorf("collectives in modules: %q", inside)
			}
			if x.evaluates && programs([]*result{got}) < 2 {
				t.Errorf("evaluation has no collectives in its modules: %s", got.Explain)
			}
			said := strings.Join(strings.Fields(got.Explain), " ")
			if strings.Contains(said, "through the host, because") {
				t.Errorf("devices communicate through the host: %s", said)
			}
			if padded := strings.Contains(said, "are padded: 31 rows to 32 in "); padded != (x.network == uneven) {
				t.Errorf("it says that parts are padded: %v", padded)
			}
			if strings.Contains(x.name, "all-to-all") && !strings.Contains(inside, "all-to-all") {
				t.Errorf("collectives in modules: %q", inside)
			}
			t.Logf("%s; %s", inside, host)
		})
	}
}
