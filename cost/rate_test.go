// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestRatesAreInterpolated(t *testing.T) {
	var r Rate
	if err := json.Unmarshal([]byte(`{"1e8": 4e9, "1e6": 1e9}`), &r); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[float64]float64{1: 1e9, 1e6: 1e9, 1e7: 2e9, 1e8: 4e9, 1e12: 4e9} {
		if got := r.At(size); math.Abs(got-want) > 1 {
			t.Errorf("%g at size %g, not %g", got, size, want)
		}
	}
	if got := r.Scaled(3).At(1e6); got != 3e9 {
		t.Errorf("three times 1e9 is %g", got)
	}
	text, err := json.Marshal(r)
	if want := `{"1e+06":1e+09,"1e+08":4e+09}`; err != nil || string(text) != want {
		t.Errorf("%s, not %s (%v)", text, want, err)
	}
	if err := json.Unmarshal([]byte("5e9"), &r); err != nil || r.At(1) != 5e9 || r.At(1e12) != 5e9 {
		t.Errorf("a number became %v: %v", r, err)
	}
}

func TestRatesThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "no points", `-1`: "more than 0", `{"0": 1}`: "more than 0", `{"1e6": -2}`: "more than 0",
		`{"1e6": 1, "1000000": 2}`: "two points", `{"big": 2}`: "no size", `"fast"`: "no rate",
	} {
		var r Rate
		if err := json.Unmarshal([]byte(text), &r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, which does not say %q", text, err, want)
		}
	}
}
