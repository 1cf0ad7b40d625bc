// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package isa

import (
	"strings"
	"testing"
)

func TestTheEnvironmentChoosesAmongTheLevelsOfTheCPU(t *testing.T) {
	for _, test := range []struct {
		word string
		best Level
		want Level
		err  string
	}{
		{"", AVX512, AVX512, ""},
		{"", Portable, Portable, ""},
		{"avx512", AVX512, AVX512, ""},
		{" AVX2 ", AVX512, AVX2, ""},
		{"portable", AVX512, Portable, ""},
		{"portable", Portable, Portable, ""},
		{"avx512", AVX2, AVX2, "epl: EPL_CPU_ISA=avx512: this CPU has no AVX-512; it has portable, avx2: use one of these, or unset it"},
		{"avx2", Portable, Portable, "epl: EPL_CPU_ISA=avx2: this CPU has no AVX2; it has portable: use"},
		{"sse", AVX512, AVX512, "epl: EPL_CPU_ISA=sse: there is no such instruction set; this CPU has portable, avx2, avx512: use"},
	} {
		got, err := parse(test.word, test.best)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
			t.Errorf("%q on a CPU with %s: %s, %v", test.word, test.best, got, err)
		}
	}
}

func TestAWrongOrLateChoiceIsAnError(t *testing.T) {
	if err := Check(); err != nil {
		t.Error(err)
	}
	t.Setenv(Env, "sse")
	if err := Check(); err == nil || !strings.Contains(err.Error(), "EPL_CPU_ISA=sse: there is no such") {
		t.Error(err)
	}
	other := Portable
	if atStart == Portable {
		other = Best()
	}
	t.Setenv(Env, words[other])
	if err := Check(); other != atStart && (err == nil || !strings.Contains(err.Error(), "after the program had started")) {
		t.Error(err)
	}
}

func TestPackagesLearnWhichLevelIsInUse(t *testing.T) {
	var told []Level
	before := Current()
	OnUse(func(l Level) { told = append(told, l) })
	if was := Use(Portable); was != before || Current() != Portable {
		t.Errorf("%s was in use, and is %s", was, Current())
	}
	Use(before)
	if len(told) != 3 || told[0] != before || told[1] != Portable || told[2] != before {
		t.Error("told", told)
	}
}
