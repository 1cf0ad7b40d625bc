// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl/hf"
)

var update = flag.Bool("update", false, "train the tokenizer again")

func parse(t *testing.T, line string) flags {
	t.Helper()
	f, err := parseFlags(strings.Fields(line), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// tiny is a network for tests, on a part of the text.
const tiny = "-layers 2 -width 16 -heads 2 -length 16 -batch 4 -tokens 0 "

// shortText is a file with the beginning of the text.
func shortText(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(file, []byte(shakespeare[:12000]), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// learn runs the program, with the flags of tiny before those of the line, and returns what it ended with and printed.
func learn(t *testing.T, line string) (result, string) {
	t.Helper()
	f := parse(t, tiny+line)
	if f.text == "" && f.data == "" {
		f.text = shortText(t)
	}
	var out bytes.Buffer
	r, err := run(f, &out)
	if err != nil {
		t.Fatalf("%s: %+v", line, err)
	}
	return r, out.String()
}

func TestTheTokenizerIsTrainedOnTheText(t *testing.T) {
	want, err := hf.TrainBPE(shakespeare, 512)
	if err != nil {
		t.Fatal(err)
	}
	text, err := want.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("text", "tokenizer.json")
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%s differs: go test ./examples/gpt -update writes it again (%v)", file, err)
	}
	f := parse(t, tiny)
	_, tokenizer, err := f.network()
	if err != nil {
		t.Fatal(err)
	}
	if got := tokenizer.Decode(hf.IDs(tokenizer, shakespeare)); got != shakespeare {
		t.Error("the text is another one after it was encoded and decoded")
	}
}

// It learns the shipped text in a few steps. A guess without knowledge has a loss of ln 512 = 6.24.
func TestItLearnsTheText(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shakespeare.txt")
	if err := os.WriteFile(file, []byte(shakespeare), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, style := range []string{"gpt2", "llama"} {
		r, out := learn(t, "-text "+file+" -width 64 -layers 1 -length 32 -batch 16 -learning_rate 3e-3 -steps 80 -eval 80 -profile V100-16 -style "+style)
		if r.loss > 4.5 || r.valid > 4.6 || !strings.Contains(out, " tokens/s ") || !strings.Contains(out, " MFU ") {
			t.Errorf("%s: the loss is %.3f, and %.3f on other text:\n%s", style, r.loss, r.valid, out)
		}
	}
}

// What it writes are words of the text that it has learned.
func TestItWritesWordsOfTheText(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(file, []byte(shakespeare[:3000]), 0o644); err != nil {
		t.Fatal(err)
	}
	split := func(text string) []string {
		return strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' })
	}
	known := map[string]bool{}
	for _, w := range split(shakespeare) {
		known[w] = true
	}
	for _, style := range []string{"gpt2", "llama"} {
		r, out := learn(t, "-text "+file+" -width 48 -length 32 -batch 16 -learning_rate 1e-2 -steps 80 -eval 80 -tokens 28 -prompt First -temperature 0 -style "+style)
		found, all := 0, split("First"+r.text)
		all = all[:max(len(all)-1, 0)] // the last may be cut off
		for _, w := range all {
			if known[w] {
				found++
			}
		}
		if len(all) < 6 || found*10 < len(all)*8 {
			t.Errorf("%s: %d of %d words are of the text: %q\n%s", style, found, len(all), r.text, out)
		}
	}
}

// The same samples give the same loss under every plan. A step takes four batches: micro-batches on one device, or model replicas, or both.
func TestEveryPlanLearnsTheSame(t *testing.T) {
	const steps = " -steps 4 -eval 2 -optimizer sgd -learning_rate 0.5 "
	for _, style := range []string{"gpt2", "llama"} {
		want, _ := learn(t, steps+"-devices 1 -micro_batches 4 -style "+style)
		if math.IsNaN(want.loss) || want.loss > 6.3 {
			t.Errorf("%s: one device: %v", style, want)
		}
		plans := []string{
			"-devices 4",
			"-devices 2 -micro_batches 2 -zero v2",
			"-devices 2 -micro_batches 4 -split 2",
			"-devices 2 -micro_batches 4 -stages 2",
			"-devices 2 -micro_batches 4 -auto_stages 2 -strategy ZeroBubble",
			"-devices 4 -micro_batches 4 -stages 2 -split 2",
			"-devices 4 -micro_batches 2 -split 2 -zero v1 -recompute",
		}
		if style == "llama" {
			plans = plans[1:4]
		}
		for _, plan := range plans {
			got, _ := learn(t, steps+plan+" -style "+style)
			if math.Abs(got.loss-want.loss) > 1e-5*want.loss || math.Abs(got.valid-want.valid) > 1e-5*want.valid {
				t.Errorf("%s %s: losses %v and %v, want %v and %v", style, plan, got.loss, got.valid, want.loss, want.valid)
			}
		}
	}
}

// What EPL chooses may be another number of replicas: then a step takes other samples, and it is compared with one device that takes as many.
func TestWhatEPLChoosesLearnsTheSame(t *testing.T) {
	const steps = " -steps 3 -eval 3 -optimizer sgd -learning_rate 0.5 "
	got, out := learn(t, steps+"-devices 2 -auto -explain")
	var same bool
	for _, batches := range []string{"1", "2"} {
		want, _ := learn(t, steps+"-devices 1 -micro_batches "+batches)
		same = same || math.Abs(got.loss-want.loss) <= 1e-5*want.loss
	}
	if !same {
		t.Errorf("loss %v:\n%s", got.loss, out)
	}
}

func TestMixedPrecisionLearnsNearlyTheSame(t *testing.T) {
	const steps = " -steps 4 -eval 4 -optimizer sgd -learning_rate 0.5 "
	want, _ := learn(t, steps)
	if got, _ := learn(t, steps+"-amp bfloat16"); math.Abs(got.loss-want.loss) > 0.02*want.loss || got.loss == want.loss {
		t.Errorf("loss %v, in float32 %v", got.loss, want.loss)
	}
}

// An interrupted training, continued by another number of devices, ends as one that was not.
func TestTrainingGoesOnFromACheckpoint(t *testing.T) {
	dir := t.TempDir()
	want, _ := learn(t, "-steps 6 -eval 3 -micro_batches 2 -dropout 0")
	learn(t, "-steps 4 -eval 3 -micro_batches 2 -dropout 0 -output_dir "+dir)
	got, out := learn(t, "-steps 6 -eval 3 -devices 2 -zero v1 -dropout 0 -output_dir "+dir)
	if math.Abs(got.loss-want.loss) > 1e-5*want.loss || math.Abs(got.valid-want.valid) > 1e-5*want.valid {
		t.Errorf("losses %v and %v, without interruption %v and %v:\n%s", got.loss, got.valid, want.loss, want.valid, out)
	}
	done, out := learn(t, "-steps 6 -eval 3 -output_dir "+dir)
	if !math.IsNaN(done.loss) || math.Abs(done.valid-want.valid) > 1e-5*want.valid {
		t.Errorf("a training that has all its steps: %v, want %v:\n%s", done, want, out)
	}
}

// The same text in a file, as lines of JSON and as files of tokens. A text with one line is one text, with a token at its end.
func TestATextMayBeLinesOrTokens(t *testing.T) {
	text, dir := shortText(t), filepath.Join(t.TempDir(), "packed")
	const steps = "-steps 2 -eval 2 "
	want, _ := learn(t, steps+"-text "+text)
	if _, out := learn(t, "-text "+text+" -pack "+dir); !strings.Contains(out, " tokens to train with") {
		t.Error(out)
	}
	f := parse(t, tiny+steps+"-data "+dir)
	if got, err := run(f, io.Discard); err != nil || got != want {
		t.Errorf("from files of tokens %v, from text %v (%v)", got, want, err)
	}
	lines := filepath.Join(t.TempDir(), "x.jsonl")
	var b strings.Builder
	for _, part := range strings.SplitAfter(shakespeare[:12000], "\n\n") {
		line, err := json.Marshal(map[string]string{"text": part})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	if err := os.WriteFile(lines, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, out := learn(t, steps+"-text "+lines); math.IsNaN(got.loss) || !strings.Contains(out, " tokens to train with") {
		t.Error(got, out)
	}
	if err := os.WriteFile(lines, []byte("{\"text\": \"a\"}\n{\"Words\": 1}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := run(parse(t, tiny+"-text "+lines), io.Discard); err == nil || !strings.Contains(err.Error(), lines+`: byte 14: the line has no "text"`) {
		t.Error(err)
	}
	if err := os.WriteFile(lines, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(dir, "train.tokens"))
	if _, err := run(parse(t, tiny+"-text "+lines+" -pack "+dir), io.Discard); err == nil {
		t.Error("a text without tokens was written")
	}
	if after, err := os.ReadFile(filepath.Join(dir, "train.tokens")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a text without tokens was written over another one (%v)", err)
	}
	if r, err := run(parse(t, tiny+steps+"-export "+lines), io.Discard); err == nil || !strings.Contains(err.Error(), "-export: mkdir") || r.valid != 0 {
		t.Errorf("-export cannot be written, which was found after the training: %v (%v)", r, err)
	}
	if _, err := run(parse(t, tiny+"-data "+t.TempDir()), io.Discard); err == nil || !strings.Contains(err.Error(), "-pack makes them") {
		t.Error(err)
	}
}

// What is written depends on the seed alone, and on several devices it is the same.
func TestWritingIsTheSameUnderEveryPlan(t *testing.T) {
	dir := t.TempDir()
	learn(t, "-steps 3 -eval 3 -export "+filepath.Join(dir, "hub"))
	line := "-tokens 12 -steps 0 -prompt First -model_dir " + filepath.Join(dir, "hub")
	write := func(more string) string {
		t.Helper()
		f := parse(t, "-length 16 -batch 4 -text "+shortText(t)+" "+line+more)
		r, err := run(f, io.Discard)
		if err != nil {
			t.Fatalf("%s: %+v", more, err)
		}
		return r.text
	}
	want := write("")
	if want == "" {
		t.Fatal("nothing was written")
	}
	for _, more := range []string{" -devices 2", " -devices 2 -split 2", " -devices 2 -stages 2"} {
		if got := write(more); got != want {
			t.Errorf("%s: %q, want %q", more, got, want)
		}
	}
	if got := write(" -seed 2"); got == want {
		t.Errorf("another seed writes the same: %q", got)
	}
}

func TestDrawingFollowsTheProbabilities(t *testing.T) {
	logits := []float32{0, float32(math.Log(2)), float32(math.Log(5)), float32(math.Inf(-1))}
	count := func(temperature float64, k int) (n [4]int) {
		random := newRandom()
		for range 8000 {
			n[draw(logits, temperature, k, random)]++
		}
		return n
	}
	if n := count(0, 0); n != [4]int{0, 0, 8000, 0} {
		t.Error(n)
	}
	if n := count(1, 0); n[0] < 850 || n[0] > 1150 || n[1] < 1850 || n[1] > 2150 || n[3] != 0 {
		t.Error(n)
	}
	if n := count(1, 2); n[0] != 0 || n[1] < 2150 || n[1] > 2420 {
		t.Error(n)
	}
	if n := count(2, 0); n[0] < 1400 {
		t.Error(n)
	}
}

// The published numbers of parameters, and those that the model makes.
func TestTheSizesHaveTheParametersOfGPT2(t *testing.T) {
	for name, want := range map[string]int{"small": 124439808, "medium": 354823168, "large": 774030080, "xl": 1557611200} {
		s := sizes[name]
		if got := (gpt{layers: s.layers, width: s.width, heads: s.heads, vocabulary: 50257, positions: 1024}).parameters(); got != want {
			t.Errorf("%s: %d parameters, want %d", name, got, want)
		}
	}
	for _, style := range []string{"gpt2", "llama"} {
		f := parse(t, tiny+"-style "+style)
		m, _, err := f.network()
		if err != nil {
			t.Fatal(err)
		}
		env, err := f.init()
		if err != nil {
			t.Fatal(err)
		}
		defer env.Close()
		store, n := model.NewStore(), 0
		exec, err := model.NewExec(env.Backend(), store, func(scope *model.Scope, ids *Node) *Node { return m.logits(scope, ids, nil) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := exec.Call([][]int32{{1, 2, 3}}); err != nil {
			t.Fatal(err)
		}
		var paths []string
		for v := range store.IterVariables() {
			if v.Trainable {
				n += v.Shape().Size()
				paths = append(paths, v.Path())
			}
		}
		if n != m.parameters() {
			t.Errorf("%s: %d parameters, and the model has %d", style, m.parameters(), n)
		}
		if style == "gpt2" {
			for _, w := range m.weights() {
				v := store.GetVariable(w.Path)
				if v == nil || !v.Shape().Equal(shapes.Make(dtypes.Float32, w.Shape...)) {
					t.Errorf("the model has no variable %s of shape %v", w.Path, w.Shape)
				}
				paths = slices.DeleteFunc(paths, func(p string) bool { return p == w.Path })
			}
			if len(paths) > 0 {
				t.Errorf("files of GPT-2 have no place for %v", paths)
			}
		}
	}
}

func TestWrongFlagsAreOneClearSentence(t *testing.T) {
	for line, want := range map[string]string{
		"x":                              `there are no arguments, only flags: remove "x"`,
		"-nothing":                       "see -help",
		"-size huge":                     "it can be large, medium, nano, small, xl",
		"-style bert":                    "it can be gpt2 or llama",
		"-style llama -export x":         "no place for -style llama",
		"-model_dir x -layers 3":         "the network is that of -model_dir",
		"-width 10 -heads 3":             "must divide into the heads",
		"-temperature -1":                "none is below 0",
		"-steps -1":                      "it is 0 or more",
		"-eval 0":                        "every 1 step or more",
		"-batch 0":                       "at least 1 sample",
		"-optimizer lion":                "it can be adam or sgd",
		"-learning_rate 0":               "above 0",
		"-dropout 1":                     "from 0 to below 1",
		"-devices 0":                     "at least 1",
		"-stages 2 -auto_stages 2":       "choose one",
		"-auto -split 2":                 "with -auto EPL chooses",
		"-amp int8":                      "it can be float16 or bfloat16",
		"-data x -text y":                "choose one",
		"-split 2 -auto_stages 2":        "use -stages",
		"-length 0":                      "at least 1 token",
		"-micro_batches 0":               "at least 1",
		"-style llama -width 6 -heads 2": "heads of an even width",
	} {
		if _, err := parseFlags(strings.Fields(line), io.Discard); err == nil || !strings.HasPrefix(err.Error(), "gpt: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
	var help bytes.Buffer
	if _, err := parseFlags([]string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-temperature") {
		t.Error(err, &help)
	}
	for line, want := range map[string]string{
		tiny + "-stages 3":                "3 stages are more than the 2 layers",
		tiny + "-model_dir /not/there":    "the network is that of -model_dir",
		"-model_dir /not/there":           "there is no folder",
		tiny + "-length 100000":           "use a longer text, or a smaller -length",
		tiny + "-text /not/there":         "-text: open /not/there",
		tiny + "-profile X1 -steps 1":     "there is no profile",
		tiny + "-zero v7 -steps 1":        "zero.level",
		tiny + "-strategy Hope -stages 2": "pipeline.strategy",
	} {
		f, err := parseFlags(strings.Fields(line), io.Discard)
		if err == nil {
			_, err = run(f, io.Discard)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestAMessageBeginsWithItsCause(t *testing.T) {
	err := errors.New("Loop.RunSteps(1): failed: epl: 1 device is missing")
	if got, want := message(err), "epl: 1 device is missing\n(Loop.RunSteps(1): failed)"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	for _, plain := range []string{"epl: 1 device is missing", "gpt: -steps is -1"} {
		if got := message(errors.New(plain)); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}
