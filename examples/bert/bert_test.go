// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
)

func newEnv(t *testing.T, opts ...epl.Option) *epl.Env {
	t.Helper()
	env, err := epl.Init(nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	return env
}

func parse(t *testing.T, line string) flags {
	t.Helper()
	f, err := parseFlags(strings.Fields(line), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// learn runs a training that is small enough for a test, with some questions of the sample, and returns what it printed
// and its losses.
func learn(t *testing.T, line string) (out string, losses []float64) {
	t.Helper()
	f := parse(t, "-layers 2 -hidden 8 -heads 1 -batch 4 -max_seq_length 32 -max_query_length 12 -learning_rate 0.01 -warmup 0 "+line)
	tok, err := f.vocabulary()
	if err != nil {
		t.Fatal(err)
	}
	data, err := sampleQuestions()
	if err != nil {
		t.Fatal(err)
	}
	data.train, data.dev = data.train[:12], data.dev[:4]
	data.prepare(tok, f.window)
	env, err := f.init()
	if err != nil {
		t.Fatalf("%s: %+v", line, err)
	}
	t.Cleanup(func() { _ = env.Close() })
	var text bytes.Buffer
	if _, err := fit(env, f.network(tok.Size()), data, f, &text); err != nil {
		t.Fatalf("%s: %+v", line, err)
	}
	for _, found := range regexp.MustCompile(`loss ([0-9.]+)`).FindAllStringSubmatch(text.String(), -1) {
		loss, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, loss)
	}
	return text.String(), losses
}

func TestTrainingLowersTheLoss(t *testing.T) {
	for _, line := range []string{"-devices 1 -batch 8 -dropout 0.1 -clip 0", "-devices 2 -batch 2 -micro_batches 2"} {
		t.Run(line, func(t *testing.T) {
			out, losses := learn(t, line+" -steps 30 -eval 5")
			if len(losses) != 6 || losses[0] < 2 || losses[5] > 0.85*losses[0] {
				t.Errorf("losses %v:\n%s", losses, out)
			}
		})
	}
}

// colocated lets all stages run on one device, one after the other.
const colocated = "EPL_CLUSTER_COLOCATE_SPLIT_AND_REPLICATE"

func TestStagesDoNotChangeWhatIsLearned(t *testing.T) {
	want, _ := learn(t, "-layers 4 -steps 3 -eval 2")
	t.Setenv(colocated, "true")
	for _, stages := range []int{1, 2, 4} {
		if got, _ := learn(t, fmt.Sprintf("-layers 4 -steps 3 -eval 2 -stages %d", stages)); got != want {
			t.Errorf("%d stages:\n%swithout:\n%s", stages, got, want)
		}
	}
}

func TestAPipelineLearnsWhatOneDeviceLearns(t *testing.T) {
	for line, without := range map[string]string{
		"-devices 2 -stages 2":                                       "-devices 1",
		"-devices 4 -stages 4 -micro_batches 2":                      "-devices 1 -micro_batches 2",
		"-devices 4 -stages 2 -micro_batches 2":                      "-devices 2 -micro_batches 2",
		"-devices 2 -stages 2 -micro_batches 3 -strategy ZeroBubble": "-devices 1 -micro_batches 3",
		"-devices 2 -auto_stages 2 -micro_batches 2":                 "-devices 1 -micro_batches 2",
	} {
		t.Run(line, func(t *testing.T) {
			_, got := learn(t, line+" -layers 4 -steps 3 -eval 1")
			_, want := learn(t, without+" -layers 4 -steps 3 -eval 1")
			for i := range want {
				if len(got) != len(want) || math.Abs(got[i]-want[i]) > 0.0011 { // the last digit printed
					t.Fatalf("losses %v, without stages %v", got, want)
				}
			}
		})
	}
}

func TestStagesHaveTheSameNumberOfLayers(t *testing.T) {
	for _, c := range []struct {
		layers, stages int
		want           string
	}{
		{4, 0, "[4]"}, {4, 1, "[4]"}, {4, 2, "[2 2]"}, {12, 4, "[3 3 3 3]"}, {24, 4, "[6 6 6 6]"}, {5, 2, "[2 3]"}, {4, 3, "[1 1 2]"},
	} {
		b := bert{layers: c.layers, stages: c.stages}
		var got []int
		for stage := range max(c.stages, 1) {
			got = append(got, b.firstLayer(stage+1)-b.firstLayer(stage))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%d layers in %d stages: %v, want %s", c.layers, c.stages, got, c.want)
		}
	}
}

func TestAnswersAndCheckpointsAreWrittenAndContinued(t *testing.T) {
	folder := t.TempDir()
	first, _ := learn(t, "-steps 4 -eval 3 -output_dir "+folder)
	if got := regexp.MustCompile(`step +(\d+)`).FindAllString(first, -1); !slices.Equal(got, []string{"step     3", "step     4"}) {
		t.Errorf("got %q", first)
	}
	text, err := os.ReadFile(filepath.Join(folder, "predictions.json"))
	if err != nil {
		t.Fatal(err)
	}
	var answers map[string]string
	if err := json.Unmarshal(text, &answers); err != nil || len(answers) != 4 || answers["dev-0-0"]+answers["dev-0-1"] == "" {
		t.Errorf("got %s, %v", text, err)
	}
	if second, _ := learn(t, "-steps 6 -eval 5 -output_dir "+folder); !strings.HasPrefix(second, "step     5  ") || !strings.Contains(second, "step     6  ") {
		t.Errorf("it does not go on where it stopped: %s", second)
	}
	if third, _ := learn(t, "-steps 6 -output_dir "+folder); !strings.HasPrefix(third, "step     6  exact match") {
		t.Errorf("it is finished, and only answers: %s", third)
	}
}

func TestWithoutEpochsItOnlyAnswers(t *testing.T) {
	if out, losses := learn(t, "-epochs 0"); len(losses) != 0 || !strings.HasPrefix(out, "step     0  exact match ") {
		t.Errorf("got %s", out)
	}
}

func TestAnEpochGoesThroughAllWindows(t *testing.T) {
	for line, want := range map[string]int{
		"-epochs 1 -batch 8 -devices 1":                           13, // of 100 windows
		"-epochs 2 -batch 8 -devices 1":                           25,
		"-epochs 1 -batch 8 -devices 2":                           7,
		"-epochs 1 -batch 8 -devices 2 -micro_batches 2":          4,
		"-epochs 1 -batch 8 -devices 4 -stages 2":                 7,
		"-epochs 1 -batch 8 -devices 4 -stages 4":                 13,
		"-steps 3 -batch 8 -devices 4 -stages 4":                  3,
		"-epochs 1.5 -batch 10 -devices 1 -learning_rate 0.00001": 15,
	} {
		f := parse(t, line)
		env, err := f.init()
		if err != nil {
			t.Fatal(err)
		}
		if got := f.totalSteps(env, 100); got != want {
			t.Errorf("%s: %d steps, want %d", line, got, want)
		}
		if err := env.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBatchesGoThroughAllWindowsAgainAndAgain(t *testing.T) {
	all := make([]window, 5)
	for i := range all {
		all[i] = window{ids: []int32{int32(i)}, segments: []int32{0}, mask: []int32{1}}
	}
	var first, again []int32
	for _, got := range []*[]int32{&first, &again} {
		for batch, err := range (batches{windows: all, size: 2, seed: 7}).Iter() {
			if err != nil {
				t.Fatal(err)
			}
			*got = append(*got, batch.Inputs[0].Value().([][]int32)[0]...)
			*got = append(*got, batch.Inputs[0].Value().([][]int32)[1]...)
			if len(*got) == 10 {
				break
			}
		}
	}
	if !slices.Equal(first, again) {
		t.Errorf("the same seed gives %v and %v", first, again)
	}
	for epoch := range slices.Chunk(first, 5) {
		if slices.Sort(epoch); !slices.Equal(epoch, []int32{0, 1, 2, 3, 4}) {
			t.Errorf("an epoch has %v", epoch)
		}
	}
}

// parameters counts the trained numbers of a network.
func parameters(t *testing.T, b bert) (count int) {
	t.Helper()
	store := model.NewStore()
	g := NewGraph(newEnv(t).Backend(), "count")
	var in []*Node
	for _, name := range []string{"ids", "segments", "mask"} {
		in = append(in, Parameter(g, name, shapes.Make(dtypes.Int32, 2, 16)))
	}
	for _, out := range b.logits(store.RootScope(), in) {
		if err := out.Shape().CheckDims(2, 16); err != nil {
			t.Error(err)
		}
	}
	for v := range store.IterVariables() {
		if v.Trainable {
			count += v.Shape().Size()
		}
	}
	return count
}

func TestTheSizesHaveTheParametersOfThePaper(t *testing.T) {
	// BERT-base has 109,482,240 parameters and BERT-large 335,141,888, with a pooler, which has no part in answers. The
	// head has two for each number of the width, and two more.
	for line, want := range map[string]int{
		"-size base":  109_482_240 - (768*768 + 768) + 2*768 + 2,
		"-size large": 335_141_888 - (1024*1024 + 1024) + 2*1024 + 2,
	} {
		if got := parameters(t, parse(t, line).network(30522)); got != want {
			t.Errorf("%s: %d parameters, want %d", line, got, want)
		}
	}
	if got := parameters(t, parse(t, "").network(250)); got > 250_000 {
		t.Errorf("the tiny one has %d", got)
	}
}

func TestRunPrintsWhatItLearnsFrom(t *testing.T) {
	var out bytes.Buffer
	f := parse(t, "-layers 1 -hidden 8 -heads 1 -batch 99 -epochs 0")
	if err := run(f, &out); err != nil {
		t.Fatalf("%+v", err)
	}
	if !regexp.MustCompile(`^1800 questions to train with, in \d+ windows; 180 to answer, in \d+ windows\nstep     0  exact match +\d`).MatchString(out.String()) {
		t.Errorf("got %s", &out)
	}
}

func TestAModelFolderIsTrainedFurther(t *testing.T) {
	folder := t.TempDir()
	vocabulary, err := sample.ReadFile("sample/vocab.txt")
	if err != nil {
		t.Fatal(err)
	}
	b := bert{layers: 1, hidden: 8, heads: 1, vocabulary: bytes.Count(vocabulary, []byte("\n")), positions: 128}
	writeTensors(t, filepath.Join(folder, "model.safetensors"), "F32", randomWeights(b, false))
	if err := os.WriteFile(filepath.Join(folder, "vocab.txt"), vocabulary, 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	f := parse(t, "-size tiny -layers 1 -hidden 8 -heads 1 -batch 60 -steps 1 -train sample/dev.json -dev sample/dev.json -model_dir "+folder)
	if err := run(f, &out); err != nil {
		t.Fatalf("%+v", err)
	}
	if !strings.Contains(out.String(), "180 questions to train with") || !strings.Contains(out.String(), "step     1  loss ") {
		t.Errorf("got %s", &out)
	}
	f.modelDir = t.TempDir()
	if err := run(f, io.Discard); err == nil || !strings.Contains(err.Error(), "bert: -model_dir: epl: the folder ") {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestWrongFlagsAreOneClearSentence(t *testing.T) {
	for line, want := range map[string]string{
		"-size huge":               `bert: -size is "huge"; it can be base, large, tiny`,
		"-layers 0":                "bert: -layers is 0; a network has at least 1",
		"-hidden 10 -heads 4":      "bert: -hidden is 10 and -heads is 4; the width must divide into the heads",
		"-max_query_length 0":      "bert: -max_query_length is 0; a question has at least 1 word piece",
		"-max_seq_length 15":       "bert: -max_seq_length is 15; it can be from 20, the longest question (-max_query_length) with 3 marks and a word, to 128, what the network has positions for",
		"-max_seq_length 129":      "bert: -max_seq_length is 129; it can be from 20, the longest question (-max_query_length) with 3 marks and a word, to 128, what the network has positions for",
		"-doc_stride 0":            "bert: -doc_stride is 0; windows are at least 1 word piece apart",
		"-n_best_size 0":           "bert: -n_best_size is 0; consider at least 1",
		"-max_answer_length 0":     "bert: -max_answer_length is 0; an answer has at least 1 word piece",
		"-train x":                 "bert: -train and -dev go together: without both the sample is used",
		"-train x -dev y":          "bert: -train needs -model_dir, for the vocabulary: the sample has one of its own",
		"-model_dir x":             "bert: -model_dir needs -train and -dev: the sample has a vocabulary of its own, and a trained model has another",
		"-epochs 1 -steps 1":       "bert: -epochs and -steps both say how long to train; choose one",
		"-epochs -1":               "bert: -epochs is -1; it is 0 or more",
		"-steps 0":                 "bert: -steps is 0; train for at least 1 step, or answer only with -epochs 0",
		"-batch 0":                 "bert: -batch is 0; a micro-batch has at least 1 window",
		"-micro_batches 0":         "bert: -micro_batches is 0; a step has at least 1",
		"-learning_rate 0":         "bert: -learning_rate is 0; a learning rate is above 0",
		"-warmup 2":                "bert: -warmup is 2; it is a share of the steps, from 0 to 1",
		"-dropout 1":               "bert: -dropout is 1; it is a share, from 0 to below 1",
		"-clip -1":                 "bert: -clip is -1; it is a norm above 0, or 0",
		"-eval -1":                 "bert: -eval is -1; evaluate every 1 step or more",
		"-devices 0":               "bert: -devices is 0; a worker has at least 1",
		"-stages 5":                "bert: -stages is 5; it can be 0, and up to the number of layers, 4",
		"-auto_stages 5":           "bert: -auto_stages is 5; it can be up to the number of layers, 4",
		"-stages 2 -auto_stages 2": "bert: -stages annotates the stages, and with -auto_stages EPL finds them; choose one",
		"now":                      `bert: there are no arguments, only flags: remove "now", or see -help`,
		"-step 3":                  "bert: flag provided but not defined: -step; see -help",
	} {
		if _, err := parseFlags(strings.Fields(line), io.Discard); err == nil || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", line, err, want)
		}
	}
}

func TestAnUnknownScheduleIsRefusedByEPL(t *testing.T) {
	if _, err := parse(t, "-stages 2 -devices 2 -strategy Sideways").init(); err == nil || !strings.Contains(err.Error(), "pipeline.strategy") {
		t.Errorf("got %v", err)
	}
}

func TestTheSizeSaysWhatTheFlagsDoNot(t *testing.T) {
	f := parse(t, "-model_dir m -train t -dev d")
	if f.layers != 12 || f.window != (windowing{384, 128, 64}) || f.epochs != 2 || f.rate != 3e-5 || f.dropout != 0.1 {
		t.Errorf("with -model_dir: %+v", f)
	}
	f = parse(t, "-size large -layers 6 -max_seq_length 128 -dropout 0 -epochs 0")
	if f.layers != 6 || f.hidden != 1024 || f.window != (windowing{128, 128, 64}) || f.epochs != 0 || f.dropout != 0 {
		t.Errorf("large, with changes: %+v", f)
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	var help bytes.Buffer
	if _, err := parseFlags([]string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help gives the error %v", err)
	}
	for _, name := range strings.Fields("size layers hidden heads train dev model_dir output_dir epochs steps batch micro_batches " +
		"devices stages auto_stages strategy learning_rate warmup seed explain") {
		if !strings.Contains(help.String(), "  -"+name+" ") && !strings.Contains(help.String(), "  -"+name+"\n") {
			t.Errorf("-help does not list -%s", name)
		}
	}
}
