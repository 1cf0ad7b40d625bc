// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
)

func TestEveryProfileOfEPLIsComplete(t *testing.T) {
	t.Setenv(EnvProfiles, t.TempDir())
	names := Names()
	for _, want := range []string{"V100-16", "V100-32", "P100-16", "A100-40", "A100-80", "H100", "H200"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no %s", want)
		}
	}
	for _, name := range names {
		p, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name != name || p.Source == "" || p.Memory == 0 || p.Inside == nil || p.Between == nil || p.Launch == 0 || !p.Fuses {
			t.Errorf("%s: %+v", name, p)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseProfile(text); err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%s is not what was written of it: %v\n%s", name, err, text)
		}
		for _, family := range Families {
			if !slices.Contains([]string{Memory, Rows, Pack}, family) && p.Rate(family, dtypes.Float32, 1e9) == 0 {
				t.Errorf("%s has no rate of %s", name, family)
			}
		}
	}
}

func TestATypeThatAProfileDoesNotHaveRunsAsFloat32(t *testing.T) {
	p, err := Find("V100-32")
	if err != nil {
		t.Fatal(err)
	}
	if a, b := p.Rate(Dot, dtypes.BFloat16, 1e12), p.Rate(Dot, dtypes.Float32, 1e12); a != b {
		t.Errorf("bfloat16 %g, float32 %g", a, b)
	}
	if a, b := p.Rate(Dot, dtypes.Float16, 1e12), p.Rate(Dot, dtypes.Float32, 1e12); a < 4*b {
		t.Errorf("float16 %g, float32 %g", a, b)
	}
}

func TestProfilesOfTheUser(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(EnvProfiles, dir)
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("mine.json", `{"name": "mine", "memory": "8GiB", "bandwidth": "100GB/s", "launch": "2us", "rates": {"dot": 1e12}, "between": {"latency": "50us", "bandwidth": "10Gb/s", "shared": true}}`)
	p, err := Find("mine")
	if err != nil {
		t.Fatal(err)
	}
	if p.Memory != 8<<30 || p.Bandwidth != 100e9 || p.Launch != 2*time.Microsecond || p.Rate(Conv, dtypes.Float16, 1) != 1e12 {
		t.Errorf("%+v", p)
	}
	if want := (Link{50 * time.Microsecond, 1.25e9, true}); *p.Between != want {
		t.Errorf("%+v, not %+v", *p.Between, want)
	}
	file := write("other.yaml", "name: other\nbandwidth: 1e9\nrates: {dot/float32: {1e6: 2e9, 1e9: 2e11}}\n")
	if p, err := Find(file); err != nil || p.Rate(Dot, dtypes.Float32, 1e9) != 2e11 {
		t.Errorf("%+v, %v", p, err)
	}
	for text, want := range map[string]string{
		`{"bandwidth": 1, "rates": {"dot": 1}}`:                                                                     "no name",
		`{"name": "x", "rates": {"dot": 1}}`:                                                                        "no bandwidth",
		`{"name": "x", "bandwidth": -1, "rates": {"dot": 1}}`:                                                       "no bandwidth",
		`{"name": "x", "bandwidth": 1}`:                                                                             "no rate of matrix products",
		`{"name": "x", "bandwidth": 1, "rates": {"dots": 1}}`:                                                       "no such family",
		`{"name": "x", "bandwidth": 1, "rates": {"dot": -1}}`:                                                       "more than 0",
		`{"name": "x", "bandwidth": 1, "memory": -5, "rates": {"dot": 1}}`:                                          "no size of memory",
		`{"name": "x", "bandwidth": 1, "launch": "-5us"}`:                                                           "no time",
		`{"name": "x", "bandwidth": 1, "tile": [0, 3]}`:                                                             "such as [12, 32]",
		`{"name": "x", "bandwidth": 1, "teams": {"1": {"bandwidth": 1, "rates": {"dot": 1}}}, "rates": {"dot": 1}}`: "at least 2",
		`{"name": "x", "bandwidth": 1, "flops": 5}`:                                                                 "flops",
		`{"name": "x", "bandwidth": 1, "inside": {"latency": "1us"}}`:                                               "a link has no bandwidth",
		`{"name": "x", "bandwidth": 1, "inside": {"bandwidth": "5 parsecs"}}`:                                       "12.5GB/s",
	} {
		write("bad.json", text)
		if _, err := Find("bad"); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "bad.json") {
			t.Errorf("%s: %v, which does not say %q", text, err, want)
		}
	}
}

func TestUnknownProfiles(t *testing.T) {
	t.Setenv(EnvProfiles, t.TempDir())
	_, err := Find("V100-33")
	for _, want := range []string{"did you mean V100-32", "A100-40, A100-80, H100", "docs/profiles.md"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: it does not say %q", err, want)
		}
	}
	if _, err := Find(This); err == nil || !strings.Contains(err.Error(), "epl calibrate") {
		t.Errorf("%v: it does not say how to get it", err)
	}
}
