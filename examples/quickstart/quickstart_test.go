// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"

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

func newPlain(t *testing.T) compute.Backend {
	t.Helper()
	backend, err := newBackend(flags{}.plainBackend())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Finalize)
	return backend
}

// trained trains on EPL.
func trained(t *testing.T, f flags, opts ...epl.Option) *training {
	t.Helper()
	env := newEnv(t, opts...)
	h := newTraining(env.Backend())
	h.deal, h.print = env.Dataset, false
	if f.dir != "" {
		var err error
		if h.saver, err = env.Checkpoints(h.store).Dir(f.dir).Done(); err != nil {
			t.Fatalf("%+v", err)
		}
	}
	if err := h.run(f); err != nil {
		t.Fatalf("%+v", err)
	}
	return h
}

func TestItLearnsToReadDigits(t *testing.T) {
	h := trained(t, flags{steps: 1000, batch: 30})
	if first, last := h.losses[0], h.losses[999]; !(first > 2 && last < 0.2 && h.accuracy > 0.9) {
		t.Errorf("the loss went from %v to %v, and of unseen digits it reads %v", first, last, h.accuracy)
	}
}

func TestItGoesOnWhereItEnded(t *testing.T) {
	want := trained(t, flags{steps: 80, batch: 30})
	dir := t.TempDir()
	first := trained(t, flags{steps: 55, batch: 30, dir: dir}) // in the middle of the samples
	second := trained(t, flags{steps: 80, batch: 30, dir: dir})
	sameBits(t, "losses", want.losses, append(first.losses, second.losses...))
	sameBits(t, "accuracy", []float32{want.accuracy}, []float32{second.accuracy})
	if third := trained(t, flags{steps: 80, batch: 30, dir: dir}); len(third.losses) > 0 || third.accuracy != want.accuracy {
		t.Errorf("there was nothing left to train, but there were %d steps; it reads %v", len(third.losses), third.accuracy)
	}
}

func TestWithoutPassesEveryBitIsThatOfPlainGoMLX(t *testing.T) {
	f := flags{steps: 60, batch: 30}
	want := newTraining(newPlain(t))
	want.print = false
	if err := want.run(f); err != nil {
		t.Fatalf("%+v", err)
	}
	got := trained(t, f, epl.WithPasses("none"))
	sameBits(t, "losses", want.losses, got.losses)
	compared := 0
	for v := range want.store.IterVariables() {
		if w := got.store.GetVariable(v.Path()); w != nil && v.Shape().DType == dtypes.Float32 { // metrics have random names
			sameBits(t, v.Path(), tensors.MustCopyFlatData[float32](v.MustValue()), tensors.MustCopyFlatData[float32](w.MustValue()))
			compared++
		}
	}
	if compared < 12 { // weights and biases of two layers, and two moments of each
		t.Errorf("%d variables were compared, not 12", compared)
	}
}

func TestTwoDevicesLearnWhatOneLearnsFromTwiceTheBatch(t *testing.T) {
	want := trained(t, flags{steps: 50, batch: 60})
	got := trained(t, flags{steps: 50, batch: 30}, epl.WithLocalDevices(2))
	for i := range want.losses {
		if d := math.Abs(float64(want.losses[i] - got.losses[i])); !(d < 1e-4*float64(want.losses[i])) {
			t.Fatalf("step %d: the loss is %v on one device, %v on two", i, want.losses[i], got.losses[i])
		}
	}
}

func sameBits(t *testing.T, what string, want, got []float32) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%s: %d and %d numbers", what, len(want), len(got))
	}
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			t.Fatalf("%s: number %d is %v on plain GoMLX, %v on EPL", what, i, want[i], got[i])
		}
	}
}

func TestDigitsAreThereAndInRange(t *testing.T) {
	x, y, err := readDigits()
	if err != nil || len(x) != (samples+unseen)*pixels || len(y) != samples+unseen {
		t.Fatalf("%d pixels of %d digits, %v", len(x), len(y), err)
	}
	if slices.Min(x) != 0 || slices.Max(x) != 1 || slices.Min(y) != 0 || slices.Max(y) != classes-1 {
		t.Errorf("pixels are from %v to %v, digits from %d to %d", slices.Min(x), slices.Max(x), slices.Min(y), slices.Max(y))
	}
}

func TestWrongFlagsAreOneClearSentence(t *testing.T) {
	for line, want := range map[string]string{
		"-steps 0":        "quickstart: -steps is 0; train for at least 1 step",
		"-batch 1501":     "quickstart: -batch is 1501; a batch has from 1 to 1500 samples",
		"-batch -1":       "quickstart: -batch is -1; a batch has from 1 to 1500 samples",
		"now":             `quickstart: there are no arguments, only flags: remove "now", or see -help`,
		"-plain -explain": "quickstart: -explain prints what EPL understood, but with -plain there is no EPL; choose one",
		"-plain -dir d":   "quickstart: -dir is for EPL's checkpoints, but with -plain there is no EPL; choose one",
		"-step 3":         "quickstart: flag provided but not defined: -step; see -help",
		"-steps three":    `quickstart: invalid value "three" for flag -steps: parse error; see -help`,
	} {
		var help bytes.Buffer
		_, err := parseFlags(strings.Fields(line), &help)
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", line, err, want)
		}
		if help.Len() > 0 {
			t.Errorf("%s prints %q besides", line, &help)
		}
	}
	err := run(flags{steps: 1, batch: 1, plain: true, backend: "nope"})
	if want := `quickstart: the backend "nope" cannot be made: can't find backend "nope"`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("an unknown backend: got %v\nwant %s…", err, want)
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	var help bytes.Buffer
	if _, err := parseFlags([]string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help gives the error %v", err)
	}
	for _, name := range []string{"-steps", "-batch", "-explain", "-backend", "-plain", "-dir"} {
		if !strings.Contains(help.String(), "  "+name) {
			t.Errorf("-help does not list %s", name)
		}
	}
}
