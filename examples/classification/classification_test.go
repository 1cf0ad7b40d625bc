// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/easyparallel/epl/examples/internal/residual"
)

// tiny is a trunk that is small enough for a test.
var tiny = residual.Network{Size: 12, Width: 8, Blocks: []int{1, 1}}

func parse(t *testing.T, line string) flags {
	t.Helper()
	f, err := parseFlags(strings.Fields(line), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	f.trunk = tiny
	return f
}

func trained(t *testing.T, f flags) result {
	t.Helper()
	p, err := f.pictures()
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.train(p, io.Discard)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if len(r.losses) != f.steps {
		t.Fatalf("%d losses of %d steps", len(r.losses), f.steps)
	}
	return r
}

func TestTrainingRaisesTheAccuracy(t *testing.T) {
	r := trained(t, parse(t, "-classes 500 -steps 50 -batch 8"))
	if first := float64(r.losses[0]); math.Abs(first-math.Log(500)) > 1.5 {
		t.Errorf("the loss begins at %v", first)
	}
	// Who knows which classes there are, but does not look at the images, has a loss of ln 16 and these accuracies.
	if last := mean(r.losses[40:]); last > 2.5 || r.top1 < 2./kinds || r.top5 < 7./kinds {
		t.Errorf("the loss is %v, the accuracy %v, top-5 %v", last, r.top1, r.top5)
	}
}

func TestSeveralDevicesLearnWhatOneLearns(t *testing.T) {
	for _, line := range []string{
		"-devices 2",
		"-devices 3 -batch 5 -classes 100",
		"-devices 4 -batch 3 -micro_batches 2",
		"-devices 2 -split=false",
		"-devices 2 -split=false -micro_batches 2",
	} {
		t.Run(line, func(t *testing.T) {
			f := parse(t, "-classes 1000 -steps 3 -batch 6 -seed 3 "+line)
			got := trained(t, f)
			want := trained(t, f.oneDevice(got.devices))
			if d := largestDifference(got.losses, want.losses); !(d < 1e-4) {
				t.Errorf("the losses are %v, on one device %v", got.losses, want.losses)
			}
			if got.top5 != want.top5 || got.top1 != want.top1 {
				t.Errorf("the accuracies are %v and %v, on one device %v and %v", got.top1, got.top5, want.top1, want.top5)
			}
		})
	}
}

func TestASplitHeadSendsNothingOfTheSizeOfItsClasses(t *testing.T) {
	for _, devices := range []int{2, 4} {
		sent := func(classes int, more string) int64 {
			return total(trained(t, parse(t, fmt.Sprintf("-batch 2 -steps 1 -devices %d -classes %d %s", devices, classes, more))).sent)
		}
		few, many := sent(500, ""), sent(5000, "")
		if few != many {
			t.Errorf("on %d devices, one sends %d bytes for 500 classes and %d for 5,000", devices, few, many)
		}
		if all := sent(5000, "-split=false"); !(float64(many) < 0.2*float64(all)) {
			t.Errorf("on %d devices, one sends %d bytes, and %d without the split", devices, many, all)
		}
	}
}

func TestDataParallelismSendsWhatIsSaidOfIt(t *testing.T) {
	for _, devices := range []int{2, 3} {
		var out bytes.Buffer
		f := parse(t, fmt.Sprintf("-steps 2 -batch 3 -classes 3000 -devices %d", devices))
		if err := run(f, &out); err != nil {
			t.Fatalf("%+v", err)
		}
		_, after, _ := strings.Cut(out.String(), "\ndata parallelism would send ")
		var said int64
		if _, err := fmt.Sscanf(after, "%d kB of gradients: this is ", &said); err != nil {
			t.Fatalf("%v:\n%s", err, &out)
		}
		f.split = false
		if sent := total(trained(t, f).sent); sent < said*1000-500 || sent > said*1010+1500 { // and a few results
			t.Errorf("on %d devices it sends %d bytes; said are %d kB", devices, sent, said)
		}
	}
}

func TestCompareSaysHowFarTheLossesAreApart(t *testing.T) {
	var out bytes.Buffer
	if err := run(parse(t, "-compare -devices 2 -steps 2 -batch 3 -classes 50"), &out); err != nil {
		t.Fatalf("%+v", err)
	}
	for _, want := range []string{
		"50 classes on 2 devices, 6 images in a step\nstep    1  loss ",
		"\nonce more, on one device:\n50 classes on 1 device, 6 images in a step\nstep    1  loss ",
		"\nloss of the last step: ", " on 2 devices, ", " on one; the largest difference of a step is ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line has %q:\n%s", want, &out)
		}
	}
}

func TestExplainShowsTrunkAndHead(t *testing.T) {
	var out bytes.Buffer
	if err := run(parse(t, "-explain -devices 1 -steps 1 -batch 3 -classes 50"), &out); err != nil {
		t.Fatalf("%+v", err)
	}
	for _, want := range []string{"trunk ", "head ", "/head/", "replicate(1)", "split(1)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("nothing is said of %q:\n%s", want, &out)
		}
	}
}

// imageFolder makes a folder with a grey image of each class.
func imageFolder(t *testing.T, classes ...string) string {
	t.Helper()
	folder := t.TempDir()
	for i, class := range classes {
		path := filepath.Join(folder, "train", class, "image.png")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		m := image.NewGray(image.Rect(0, 0, 10, 10))
		for p := range m.Pix {
			m.Pix[p] = uint8(10 * i)
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(png.Encode(f, m), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestTheFoldersOfImagesAreTheClasses(t *testing.T) {
	var out bytes.Buffer
	if err := run(parse(t, "-devices 1 -steps 1 -batch 4 -images "+imageFolder(t, "a", "b", "c")), &out); err != nil {
		t.Fatalf("%+v", err)
	}
	if want := "3 classes on 1 device, 4 images in a step\n"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("got %s", &out)
	}
}

func TestFoldersThatCannotBeUsedAreExplained(t *testing.T) {
	one, none := imageFolder(t, "only"), t.TempDir()
	for folder, want := range map[string]string{
		one:  "classification: there is 1 folder in " + one + "/train; there must be one for each class, of at least 2",
		none: "classification: images are expected in " + filepath.Join(none, "train") + ", in a folder for each class: ",
	} {
		if err := run(parse(t, "-images "+folder), io.Discard); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

func TestWrongFlagsAreOneClearSentence(t *testing.T) {
	for line, want := range map[string]string{
		"-trunk big":            `classification: -trunk is "big"; it can be resnet50 or small`,
		"-classes 1":            "classification: -classes is 1; it can be from 2 to 1000000",
		"-classes 1000001":      "classification: -classes is 1000001; it can be from 2 to 1000000",
		"-images x -classes 10": "classification: -classes is for generated images; with -images the folders are the classes; choose one",
		"-devices -1":           "classification: -devices is -1; a worker has at least 1",
		"-batch -1":             "classification: -batch is -1; a batch has at least 1 image",
		"-steps 0":              "classification: -steps is 0; train for at least 1 step",
		"-learning_rate NaN":    "classification: -learning_rate is NaN; it is above 0",
		"now":                   `classification: there are no arguments, only flags: remove "now", or see -help`,
		"-step 3":               "classification: flag provided but not defined: -step; see -help",
	} {
		if _, err := parseFlags(strings.Fields(line), io.Discard); err == nil || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", line, err, want)
		}
	}
	if err := run(parse(t, "-micro_batches 0"), io.Discard); err == nil || !strings.HasPrefix(err.Error(), "epl: pipeline.num_micro_batch = 0 ") {
		t.Errorf("got %v", err)
	}
}

func TestALaunchedJobIsNotCompared(t *testing.T) {
	t.Setenv("EPL_NUM_WORKERS", "1")
	if _, err := parseFlags([]string{"-compare"}, io.Discard); err == nil || !strings.HasSuffix(err.Error(), "start it without a launcher, and use -devices") {
		t.Errorf("got %v", err)
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	var help bytes.Buffer
	if _, err := parseFlags([]string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help gives the error %v", err)
	}
	for _, name := range []string{"classes", "trunk", "images", "devices", "batch", "micro_batches", "steps", "learning_rate", "seed", "split", "compare"} {
		if !strings.Contains(help.String(), "  -"+name+" ") && !strings.Contains(help.String(), "  -"+name+"\n") {
			t.Errorf("-help does not list %s", name)
		}
	}
}
