package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
)

// tiny is small enough for a test.
var tiny = resnet{size: 16, width: 8, blocks: []int{1, 1}}

func newEnv(t *testing.T, opts ...epl.Option) *epl.Env {
	t.Helper()
	env, err := epl.Init(nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	return env
}

func TestTrainingRaisesTheAccuracy(t *testing.T) {
	for _, devices := range []int{1, 2} {
		t.Run(fmt.Sprintf("devices=%d", devices), func(t *testing.T) {
			if testing.Short() && devices == 1 {
				t.Skip("two devices are enough for -short")
			}
			var out bytes.Buffer
			p := generated(512, 64, 4, tiny.size)
			f := flags{batch: 16 / devices, steps: 50, eval: 40, rate: 0.01}
			accuracy, err := fit(newEnv(t, epl.WithLocalDevices(devices)), tiny, p, f, &out)
			if err != nil {
				t.Fatalf("%+v", err)
			}
			if accuracy < 0.75 {
				t.Errorf("the accuracy is %v, by chance it would be 0.25", accuracy)
			}
			for _, line := range []string{"step   40  loss ", "step   50  loss ", fmt.Sprintf("accuracy %5.1f%% of 64\n", 100*accuracy)} {
				if !strings.Contains(out.String(), line) {
					t.Errorf("no line has %q:\n%s", line, &out)
				}
			}
		})
	}
}

func TestTheBlocksOfResNet50CanBeTrained(t *testing.T) {
	var out bytes.Buffer
	network := resnet{size: 64, width: 2, blocks: []int{1, 2}, bottleneck: true}
	f := flags{batch: 2, steps: 2, eval: 1, rate: 0.01}
	if _, err := fit(newEnv(t), network, generated(8, 3, 3, network.size), f, &out); err != nil {
		t.Fatalf("%+v", err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 2 || strings.Contains(out.String(), "NaN") {
		t.Errorf("got %s", &out)
	}
}

// parameters counts the trained numbers of a network, and returns the shape of what it computes.
func parameters(t *testing.T, r resnet, classes int) (count int, logits shapes.Shape) {
	t.Helper()
	store := model.NewStore()
	g := NewGraph(newEnv(t).Backend(), "count")
	images := Parameter(g, "images", shapes.Make(dtypes.Float32, 2, r.size, r.size, 3))
	logits = r.logits(store.RootScope(), images, classes).Shape()
	for v := range store.IterVariables() {
		if v.Trainable {
			count += v.Shape().Size()
		}
	}
	return count, logits
}

func TestResNet50HasTheParametersOfThePaper(t *testing.T) {
	count, logits := parameters(t, models["resnet50"], 1000)
	if count != 25_557_032 {
		t.Errorf("it has %d parameters", count)
	}
	if err := logits.CheckDims(2, 1000); err != nil {
		t.Error(err)
	}
}

func TestTheSmallNetworkIsSmall(t *testing.T) {
	if count, _ := parameters(t, models["small"], 8); count > 25_000 {
		t.Errorf("it has %d parameters", count)
	}
}

func TestRunPrintsWhatItLearnsFrom(t *testing.T) {
	var out bytes.Buffer
	f, err := parseFlags(strings.Fields("-steps 1 -batch 4 -data "+imageFolder(t)), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(f, &out); err != nil {
		t.Fatalf("%+v", err)
	}
	if !strings.HasPrefix(out.String(), "small on 12 images of 2 classes\nstep    1  loss ") {
		t.Errorf("got %s", &out)
	}
}

func TestWrongFlagsAreOneClearSentence(t *testing.T) {
	for line, want := range map[string]string{
		"-model big":          `resnet: -model is "big"; it can be resnet50 or small`,
		"-steps 0":            "resnet: -steps is 0; train for at least 1 step",
		"-batch -1":           "resnet: -batch is -1; a batch has at least 1 image",
		"-eval 0":             "resnet: -eval is 0; evaluate every 1 step or more",
		"-lr -1":              "resnet: -lr is -1; a learning rate is above 0",
		"-classes 1":          "resnet: -classes is 1; there can be from 2 to 48 classes of generated images",
		"-data x -classes 10": "resnet: -classes is for generated images; with -data the folders are the classes; choose one",
		"now":                 `resnet: there are no arguments, only flags: remove "now", or see -help`,
		"-step 3":             "resnet: flag provided but not defined: -step; see -help",
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
	for _, name := range []string{"-model", "-data", "-batch", "-steps", "-classes", "-lr", "-eval", "-backend", "-explain"} {
		if !strings.Contains(help.String(), "  "+name+" ") && !strings.Contains(help.String(), "  "+name+"\n") {
			t.Errorf("-help does not list %s", name)
		}
	}
}
