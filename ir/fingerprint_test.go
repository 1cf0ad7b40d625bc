// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
)

func TestWhatDiffersInEveryProcessIsLeftOut(t *testing.T) {
	const a, b = "0c9d8f5e-1b2a-4c3d-8e9f-001122334455", "ffffffff-ffff-ffff-ffff-ffffffffffff"
	for text, want := range map[string]string{
		"":                              "",
		"-":                             "-",
		"no-uuid-at-all":                "no-uuid-at-all",
		a:                               "…",
		"/metric/" + a + "/count":       "/metric/…/count",
		a + b:                           "……",
		a + "-" + b + "-":               "…-…-",
		"-1 " + a[:35]:                  "-1 " + a[:35],
		strings.ToUpper(a):              strings.ToUpper(a),
		"x-" + a[:8] + "-" + b + "-end": "x-" + a[:8] + "-…-end",
	} {
		if got := ir.Stable(text); got != want {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
}

func TestAFingerprintIsThatOfWhatAProgramComputes(t *testing.T) {
	const text = `program "one"
variable "/w" %0
outputs result
main {
  %0 = Parameter() {Name: "/w", Shape: float32[2]} -> float32[2] : forward "model.go:1"
  %1 = Neg(%0) -> float32[2] : forward "model.go:2"
  return %1
}
`
	print := func(text string) string {
		p, err := ir.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return p.Fingerprint()
	}
	for _, same := range []string{strings.Replace(text, "one", "two", 1), strings.Replace(text, "model.go:2", "model.go:7", 1)} {
		if print(same) != print(text) {
			t.Errorf("a name or a line counts:\n%s", same)
		}
	}
	for _, other := range []string{strings.Replace(text, "Neg", "Sin", 1), strings.ReplaceAll(text, "[2]", "[3]"), strings.ReplaceAll(text, "/w", "/v")} {
		if print(other) == print(text) {
			t.Errorf("another program has the same fingerprint:\n%s", other)
		}
	}
}

// The fingerprint of a long program, which is summed up in parts, is that of its text.
func TestALongProgramHasTheFingerprintOfItsText(t *testing.T) {
	var text strings.Builder
	text.WriteString("program \"\"\noutputs result\nmain {\n")
	const id = "0c9d8f5e-1b2a-4c3d-8e9f-001122334455"
	const ops = 5000
	for i := range ops {
		fmt.Fprintf(&text, "  %%%d = Parameter() {Name: \"/w-%d/%s-%d\", Shape: float32[%d]} -> float32[%d] : forward\n", i, i, id, i, i+1, i+1)
	}
	fmt.Fprintf(&text, "  return %%%d\n}\n", ops-1)
	p, err := ir.Parse(text.String())
	if err != nil {
		t.Fatal(err)
	}
	if p.String() != text.String() {
		t.Fatal("the text does not print as it was read")
	}
	sum := sha256.Sum256([]byte(strings.ReplaceAll(text.String(), id, "…")))
	if got, want := p.Fingerprint(), hex.EncodeToString(sum[:12]); got != want {
		t.Errorf("%s, not %s", got, want)
	}
}
