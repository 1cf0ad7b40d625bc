// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/easyparallel/epl/examples/internal/moe"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Words travel to the devices of their experts, and the answers back: once forward and once backward. All of it is found by EPL.
func TestWordsTravelToExpertsAndBackAndNothingElseDoes(t *testing.T) {
	for _, form := range []string{moe.FormScope, moe.FormDefine} {
		t.Run(form, func(t *testing.T) {
			f := parse(t, tiny+"-layers 2 -steps 3 -eval 4 -devices 2 -form "+form)
			c := small(t, f)
			c.held = nil // translating exchanges words, too
			env, err := f.init()
			if err != nil {
				t.Fatal(err)
			}
			defer env.Close()
			network := f.network(c, 2)
			if _, err := fit(env.Backend(), env.Dataset, network, c, f, f.batch, io.Discard); err != nil {
				t.Fatalf("%+v", err)
			}
			const layers, journeys, float = 2, 4, 4 // of encoder and decoder; there and back, forward and backward; bytes
			words := f.experts * f.batch / 2 * network.Gate.Capacity(c.length) * f.width
			want := int64(f.steps * layers * journeys * words * float) // what stays at home counts as well
			for i, d := range env.Stats().Devices {
				if d.Sent["all-to-all"] != want || d.Sent["all-gather"] > 0 || d.Sent["reduce-scatter"] > 0 {
					t.Errorf("device %d sent %v, want %d by all-to-all", i, d.Sent, want)
				}
			}
		})
	}
}

// What documents show of Explain: how the experts are divided, and what devices exchange.
func TestWhatDevicesExchangeIsAsDocumented(t *testing.T) {
	var out bytes.Buffer
	f := parse(t, "-devices 2 -steps 1 -explain")
	c, err := f.corpus()
	if err != nil {
		t.Fatal(err)
	}
	c.held = nil
	if _, _, err := runEPL(f, c, &out); err != nil {
		t.Fatalf("%+v", err)
	}
	_, after, _ := strings.Cut(out.String(), "\n  a step\n")
	got, _, found := strings.Cut(after, "    bucket  ")
	if !found {
		t.Fatalf("Explain says nothing about a step:\n%s", &out)
	}
	got = "  a step\n" + got
	file := filepath.Join("testdata", "devices.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != got {
		t.Errorf("%s differs (%v); run go test -update\ngot:\n%s", file, err, got)
	}
}
