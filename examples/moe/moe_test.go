// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func parse(t *testing.T, line string) flags {
	t.Helper()
	f, err := parseFlags(strings.Fields(line), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// tiny is a network small enough for a test.
const tiny = "-layers 1 -d_model 16 -ff 16 -heads 2 -experts 4 -batch 8 "

// small are pairs of numbers below a hundred.
func small(t *testing.T, f flags) *corpus {
	t.Helper()
	var texts [][2]string
	for _, pair := range numbers(1000) {
		if len(strings.Fields(pair[1])) <= 3 {
			texts = append(texts, pair)
		}
	}
	c, err := f.newCorpus(texts)
	if err != nil {
		t.Fatal(err)
	}
	c.held = c.held[:3]
	return c
}

// learn trains a tiny network, and returns what was printed and the losses.
func learn(t *testing.T, line string) (out string, losses []float32) {
	t.Helper()
	f := parse(t, tiny+line)
	var text bytes.Buffer
	_, losses, err := runEPL(f, small(t, f), &text)
	if err != nil {
		t.Fatalf("%s: %+v", line, err)
	}
	return text.String(), losses
}

func TestTrainingLowersTheLoss(t *testing.T) {
	for _, line := range []string{"-top_k 1", "-top_k 2 -form define"} {
		t.Run(line, func(t *testing.T) {
			out, losses := learn(t, line+" -steps 40 -eval 30 -learning_rate 0.01 -devices 1")
			if len(losses) != 40 || !(losses[39] < 0.7*losses[0]) {
				t.Errorf("losses %v", losses)
			}
			want := `^\d+ pairs to learn from, 3 held back; \d+ words, 4 in the longest sentence
4 experts of capacity \d for each sentence, on 1 device
step   30  loss \d\.\d{3}  right:  *\d+\.\d% of words,  *\d+\.\d% of 3 sentences
step   40  loss .*
".+" is ".*"
$`
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("got %s", out)
			}
		})
	}
}

func TestTrainingIsTheSameOnOneDeviceWithoutEPL(t *testing.T) {
	for _, line := range []string{
		"-devices 1 -top_k 1",
		"-devices 1 -top_k 2 -form define",
		"-devices 1 -top_k 2 -micro_batches 2",
		"-devices 2 -top_k 1 -layers 2",
		"-devices 2 -top_k 2 -form define -micro_batches 2",
		"-devices 3 -top_k 2",
		"-devices 3 -top_k 1 -form define",
		"-devices 4 -top_k 2 -batch 7 -experts 6",
		"-devices 5 -top_k 1 -experts 2",
	} {
		t.Run(line, func(t *testing.T) {
			f := parse(t, tiny+line+" -steps 3")
			c := small(t, f)
			_, losses, err := runEPL(f, c, io.Discard)
			if err != nil {
				t.Fatalf("%+v", err)
			}
			var out bytes.Buffer
			if err := compare(f, c, losses, &out); err != nil {
				t.Fatalf("%+v", err)
			}
			found := regexp.MustCompile(`largest difference: (\S+), in step`).FindStringSubmatch(out.String())
			if found == nil {
				t.Fatalf("got %s", &out)
			}
			if d, err := strconv.ParseFloat(found[1], 64); err != nil || d > 1e-4 {
				t.Errorf("got %s", &out)
			}
		})
	}
}

func TestAFewPairsOfAFileAreLearned(t *testing.T) {
	var out bytes.Buffer
	f := parse(t, tiny+"-steps 2 -eval 1 -devices 1 -data "+writePairs(t, "good morning\tguten morgen\nthank you\tdanke\n"))
	if err := run(f, &out); err != nil {
		t.Fatalf("%+v", err)
	}
	want := `^2 pairs to learn from, 0 held back; 11 words, 3 in the longest sentence
4 experts of capacity 3 for each sentence, on 1 device
step    1  loss \d\.\d{3}
step    2  loss \d\.\d{3}
$`
	if !regexp.MustCompile(want).MatchString(out.String()) {
		t.Errorf("got %s", &out)
	}
}

func TestTheComparisonShowsBothLosses(t *testing.T) {
	var out bytes.Buffer
	difference([]float32{3, 2, 1}, []float32{3, 2.5, 1}, &out)
	want := `
  step   with EPL  on one device
     1   3.000000       3.000000
     2   2.000000       2.500000
     3   1.000000       1.000000
largest difference: 0.5, in step 2
`
	if out.String() != want {
		t.Errorf("got %s", &out)
	}
}

func TestWrongFlagsAreOneClearSentence(t *testing.T) {
	for line, want := range map[string]string{
		"-layers 0":               "moe: -layers is 0; an encoder has at least 1",
		"-d_model 10 -heads 4":    "moe: -d_model is 10 and -heads is 4; the width must divide into the heads",
		"-ff 0":                   "moe: -ff is 0; an expert has a width of at least 1",
		"-top_k 3":                "moe: -top_k is 3; a word goes to 1 or 2 experts",
		"-experts 1":              "moe: -experts is 1 and -top_k is 2; there are at least as many experts as a word goes to",
		"-experts 0 -top_k 1":     "moe: -experts is 0 and -top_k is 1; there are at least as many experts as a word goes to",
		"-capacity_factor 0":      "moe: -capacity_factor is 0; it is above 0",
		"-balance -1":             "moe: -balance is -1; it is 0 or more",
		"-form other":             `moe: -form is "other"; it can be scope or define`,
		"-length 1":               "moe: -length is 1; the longest sentence has at least 2 words, of which one is its end",
		"-vocabulary 4":           "moe: -vocabulary is 4; it has at least 1 word besides 4 marks",
		"-batch 0":                "moe: -batch is 0; a micro-batch has at least 1 pair",
		"-micro_batches 0":        "moe: -micro_batches is 0; a step has at least 1",
		"-steps 0":                "moe: -steps is 0; train for at least 1 step",
		"-eval 0":                 "moe: -eval is 0; translate every 1 step or more",
		"-learning_rate 0":        "moe: -learning_rate is 0; a learning rate is above 0",
		"-devices 0":              "moe: -devices is 0; a worker has at least 1",
		"now":                     `moe: there are no arguments, only flags: remove "now", or see -help`,
		"-step 3":                 "moe: flag provided but not defined: -step; see -help",
		"-learning_rate=NaN":      "moe: -learning_rate is NaN; a learning rate is above 0",
		"-capacity_factor=NaN":    "moe: -capacity_factor is NaN; it is above 0",
		"-balance NaN -steps 100": "moe: -balance is NaN; it is 0 or more",
	} {
		if _, err := parseFlags(strings.Fields(line), io.Discard); err == nil || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", line, err, want)
		}
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	var help bytes.Buffer
	if _, err := parseFlags([]string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help gives the error %v", err)
	}
	for _, name := range strings.Fields("-layers -d_model -ff -heads -experts -top_k -capacity_factor -balance -form -data -length " +
		"-vocabulary -batch -micro_batches -steps -eval -learning_rate -seed -devices -backend -compare -explain") {
		if !strings.Contains(help.String(), "  "+name+" ") && !strings.Contains(help.String(), "  "+name+"\n") {
			t.Errorf("-help does not list %s", name)
		}
	}
}

func TestABackendThatIsNotThereIsAnError(t *testing.T) {
	f := parse(t, tiny+"-backend nope -steps 1")
	if err := run(f, io.Discard); err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("got %v", err)
	}
	if _, err := newBackend("nope"); err == nil || !strings.HasPrefix(err.Error(), `moe: the backend "nope" cannot be made`) {
		t.Errorf("got %v", err)
	}
}
