// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/examples/internal/pictures"
	"github.com/easyparallel/epl/examples/internal/residual"
)

// tiny is small enough for a test.
var tiny = residual.Network{Size: 16, Width: 8, Blocks: []int{1, 1}}

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
			p := pictures.Generated(512, 64, 4, tiny.Size)
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
	network := residual.Network{Size: 64, Width: 2, Blocks: []int{1, 2}, Bottleneck: true}
	f := flags{batch: 2, steps: 2, eval: 1, rate: 0.01}
	if _, err := fit(newEnv(t), network, pictures.Generated(8, 3, 3, network.Size), f, &out); err != nil {
		t.Fatalf("%+v", err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 2 || strings.Contains(out.String(), "NaN") {
		t.Errorf("got %s", &out)
	}
}

// parameters counts the trained numbers of a network, and returns the shape of what it computes.
func parameters(t *testing.T, n residual.Network, classes int) (count int, shape shapes.Shape) {
	t.Helper()
	store := model.NewStore()
	g := NewGraph(newEnv(t).Backend(), "count")
	images := Parameter(g, "images", shapes.Make(dtypes.Float32, 2, n.Size, n.Size, 3))
	shape = logits(store.RootScope(), n, images, classes).Shape()
	for v := range store.IterVariables() {
		if v.Trainable {
			count += v.Shape().Size()
		}
	}
	return count, shape
}

func TestResNet50HasTheParametersOfThePaper(t *testing.T) {
	count, shape := parameters(t, residual.Networks["resnet50"], 1000)
	if count != 25_557_032 {
		t.Errorf("it has %d parameters", count)
	}
	if err := shape.CheckDims(2, 1000); err != nil {
		t.Error(err)
	}
}

func TestTheSmallNetworkIsSmall(t *testing.T) {
	if count, _ := parameters(t, residual.Networks["small"], 8); count > 25_000 {
		t.Errorf("it has %d parameters", count)
	}
}

// imageFolder makes a folder of black and white images.
func imageFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"train/black/a", "train/black/b", "train/white/a", "val/black/a", "val/white/a"} {
		path := filepath.Join(folder, name+".png")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		m := image.NewUniform(color.Black)
		if strings.Contains(name, "white") {
			m = image.NewUniform(color.White)
		}
		if err := errors.Join(png.Encode(f, part{m}), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// part is an image of 9×7 pixels.
type part struct{ image.Image }

func (part) Bounds() image.Rectangle { return image.Rect(0, 0, 9, 7) }

func TestAFolderThatCannotBeUsedIsExplained(t *testing.T) {
	folder := t.TempDir()
	_, err := flags{data: folder}.pictures(8)
	if want := "resnet: images are expected in " + filepath.Join(folder, "train"); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
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
	if !strings.HasPrefix(out.String(), "small on 3 images of 2 classes\nstep    1  loss ") {
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
