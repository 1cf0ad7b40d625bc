// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/ir"
)

// What epl calibrate found out about this machine changes what EPL chooses, and what documents show.
func TestMain(m *testing.M) {
	code := func() int {
		none, err := os.MkdirTemp("", "profiles")
		if err == nil {
			defer os.RemoveAll(none)
			err = os.Setenv("EPL_PROFILES", none)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}()
	os.Exit(code)
}

// newEnv makes EPL on one device, for a config of params.
func newEnv(t *testing.T, params map[string]any, opts ...epl.Option) *epl.Env {
	t.Helper()
	cfg, err := epl.NewConfig(params)
	if err != nil {
		t.Fatal(err)
	}
	env, err := epl.Init(cfg, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	return env
}

// colocated lets all TaskGraphs run on the one device there is.
var colocated = map[string]any{"cluster.colocate_split_and_replicate": true}

// line names the line n lines below its caller, in the way of EPL's messages.
func line(n int) string {
	_, file, l, _ := runtime.Caller(1)
	return fmt.Sprintf("%s/%s:%d", filepath.Base(filepath.Dir(file)), filepath.Base(file), l+n)
}

// run runs a program of one input on a backend.
func run(backend compute.Backend, fn func(x *Node) *Node) error {
	exec, err := NewExec(backend, fn)
	if err != nil {
		return err
	}
	defer exec.Finalize()
	_, err = exec.Call([]float32{1, 2, 3})
	return err
}

// build is run, with the innermost error: what EPL said, without what GoMLX put in front of it.
func build(backend compute.Backend, fn func(x *Node) *Node) error {
	return errors.Cause(run(backend, fn))
}

// trainer makes a trainer for a linear regression, or for another model if one is given.
func trainer(backend compute.Backend, opt optimizer.Interface, fn func(scope *model.Scope, x *Node) *Node) *train.Trainer {
	if fn == nil {
		fn = func(scope *model.Scope, x *Node) *Node { return layers.Dense(scope, x, true, 1) }
	}
	return train.NewTrainer(backend, model.NewStore(), fn, loss.MeanSquaredError, opt, nil, nil)
}

// step trains one step, and returns the innermost error.
func step(tr *train.Trainer) error {
	_, err := tr.TrainStep(train.Batch{
		Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{1, 2}, {3, 4}})},
		Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{1}, {2}})},
	})
	return errors.Cause(err)
}

// dumpDir makes EPL dump the programs of environments that are made from now on, and returns where.
func dumpDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv(epl.EnvDump, dir)
	return dir
}

// recorded reads back the programs that were dumped, as they were recorded.
func recorded(t *testing.T, dir string) (programs []*ir.Program) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*-00-recorded.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := ir.Parse(string(text))
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, p)
	}
	return programs
}

// explained is what env.Explain prints.
func explained(t *testing.T, env *epl.Env) string {
	t.Helper()
	var s strings.Builder
	if err := env.Explain(&s); err != nil {
		t.Fatal(err)
	}
	return s.String()
}

// wantError compares a whole message.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("no error, want: %s", want)
	case err.Error() != want:
		t.Errorf("got:  %s\nwant: %s", err, want)
	}
}
