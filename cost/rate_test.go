// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
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

func TestTheRooflineIsThePeakOrTheMemory(t *testing.T) {
	p := &Profile{Bandwidth: 1e9, Cores: 2, Rates: map[string]Rate{Dot + "/float32": {{1e3, 5e9}, {1e6, 2e10}}, Memory: {{1e3, 4e9}, {1e6, 1e9}}}}
	for _, c := range []struct {
		threads      int
		flops, bytes float64
		want         time.Duration
	}{
		{1, 2e6, 8, 100 * time.Microsecond}, // the peak, though a product of that size is slower
		{2, 2e6, 8, 50 * time.Microsecond},
		{1, 0, 1e6, time.Millisecond},
		{1, 0, 1e3, 250 * time.Nanosecond}, // from a cache
		{1, 1, 1e6, time.Millisecond},
	} {
		if got := p.Roofline(c.threads, c.flops, c.bytes); got != c.want {
			t.Errorf("%g flops and %g bytes on %d cores take at least %v, not %v", c.flops, c.bytes, c.threads, got, c.want)
		}
	}
}
