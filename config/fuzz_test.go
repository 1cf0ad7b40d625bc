// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"strings"
	"testing"
)

// FuzzNew gives any text to any key, by code and by environment. Nothing panics; the two agree; what is accepted is
// valid, and its canonical text, given back, makes the same configuration.
func FuzzNew(f *testing.F) {
	for name, sample := range samples {
		f.Add(name, sample.env)
	}
	f.Add("cluster.device_memory", "1.5 GiB")
	f.Add("pipeline.num_stages", "none")
	f.Add("no.such_key", "")
	base := strings.Split(strings.TrimSpace(mustCanonical(f, nil)), "\n")
	f.Fuzz(func(t *testing.T, name, value string) {
		params := map[string]any{name: value}
		var environ []string
		if k, err := lookup(name); err == nil {
			needed := companions(k)
			maps.Copy(params, needed)
			for n, v := range needed {
				environ = append(environ, row(n).variable()+"="+row(n).typ.format(v))
			}
			environ = append(environ, k.variable()+"="+value)
		}
		cfg, err := resolve(params, nil)
		if err != nil {
			if cfg != nil || !strings.HasPrefix(err.Error(), "epl: ") {
				t.Fatalf("%v with the error %q", cfg, err)
			}
			return
		}
		if err := cfg.Validate(); err != nil {
			t.Fatalf("New accepted what Validate does not: %v", err)
		}
		text := cfg.Canonical()
		if value != "" {
			same, err := resolve(nil, environ)
			if err != nil || same.Canonical() != text {
				t.Fatalf("the environment disagrees with code: %v, %v", same, err)
			}
		}
		back := make(map[string]any)
		for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
			if line != base[i] {
				n, v, _ := strings.Cut(line, "=")
				back[n] = v
			}
		}
		if got := mustCanonical(t, back); got != text {
			t.Fatalf("canonical text\n%s\ncame back as\n%s", text, got)
		}
	})
}

func mustCanonical(t testing.TB, params map[string]any) string {
	t.Helper()
	cfg, err := resolve(params, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Canonical()
}
