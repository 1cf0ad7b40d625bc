// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir_test

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// spmd is a program on a mesh of two axes, with every kind of placement.
const spmd = `program "spmd"
instances 3 1
taskgraph 0 "all" split(4)
stage taskgraph 0 place 0 place 1 place 2 place 3 axis 2 axis 2
variable "/w" %1 trainable taskgraph 0
input %0
main {
  %0 = Parameter() {Name: "x", Shape: float32[4,6]} -> float32[4,6] : forward varying
  %1 = Parameter() {Name: "/w", Shape: float32[6,8]} -> float32[6,8] on replica of 3 flat on model2 of 2 sharded(0 by 3) : forward taskgraph 0
  %2 = Position() {Axis: "model"} -> int32[] on model of 2 each : forward
  %3 = Reshard(%0, %2) -> float32[4,6] on model of 2 sharded(0) : forward varying taskgraph 0
  %4 = Reshard(%1) -> float32[6,8] on model2 of 2 sharded(0 by 3) : forward taskgraph 0
  %5 = ReduceSum(%3) {Axes: [0]} -> float32[6] on model of 2 partial(sum) : forward varying pershard taskgraph 0
  %6 = Reshard(%5) -> float32[6] : forward varying taskgraph 0
  %7 = Merge(%6) {How: "mean"} -> float32[6] on replica of 3 flat : forward taskgraph 0
  %8 = FillEnd(%7, %2) {With: float32[](0)} -> float32[6] on replica of 3 flat : apply taskgraph 0
  return %8
}
`

// checkText: no text makes Parse or Verify panic, and what parses prints as text that parses and prints the same.
func checkText(t *testing.T, text string) (parses bool) {
	p, err := ir.Parse(text)
	if err != nil {
		return false
	}
	_ = p.Verify()
	printed := p.String()
	q, err := ir.Parse(printed)
	if err != nil {
		t.Fatalf("what it prints does not parse: %v\n%s\n%s", err, printed, text)
	}
	if again := q.String(); again != printed {
		t.Fatalf("it prints differently once parsed: %s\n%s", firstDifference(printed, again), text)
	}
	return true
}

func FuzzParse(f *testing.F) {
	for _, text := range append(examples(f), everything, instances, spmd) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { checkText(t, text) })
}

var token = regexp.MustCompile(`"[^"]*"|%?[\w.]+|\s+|.`)

// Fuzzing rarely gets past the syntax. Here whole words are dropped, doubled, exchanged, or put in the place of others.
func TestMangledProgramsNeitherPanicNorPrintWhatDoesNotParse(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	parsed := 0
	texts := []string{everything, instances, spmd}
	for range 4000 {
		words := token.FindAllString(texts[rng.IntN(len(texts))], -1)
		for range 1 + rng.IntN(3) {
			i, j := rng.IntN(len(words)), rng.IntN(len(words))
			switch rng.IntN(4) {
			case 0:
				words = slices.Delete(words, i, i+1)
			case 1:
				words = slices.Insert(words, i, words[i])
			case 2:
				words[i], words[j] = words[j], words[i]
			case 3:
				words[i] = words[j]
			}
		}
		if checkText(t, strings.Join(words, "")) {
			parsed++
		}
	}
	if parsed < 300 {
		t.Errorf("only %d mangled programs parse: this tests little", parsed)
	}
}
