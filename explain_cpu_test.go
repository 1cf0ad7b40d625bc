// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written

	"github.com/easyparallel/epl"
)

func TestExplainAndDumpsShowWhatTheEngineRuns(t *testing.T) {
	dir := dumpDir(t)
	t.Setenv(epl.EnvDump, dir)
	env := newEnv(t, nil, epl.WithInner("cpu"))
	if err := build(env.Backend(), func(x *Node) *Node {
		n := ConvertDType(x, dtypes.Int32)
		other := Dot(n, n).WithAccumulatorDType(dtypes.Int64).Product() // which the engine does not do for integers
		return Add(ReduceAllSum(Tanh(Dot(x, x).Product())), ConvertDType(ReduceAllSum(other), dtypes.Float32))
	}); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := env.Explain(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"what devices run", "group ", "product ", "fallbacks: ", "DotGeneral      1"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("Explain does not say %q:\n%s", want, &text)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.steps"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	steps, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"segment ", "Tanh ReduceSum", "DotGeneral: the engine has it for other types or attributes; copies "} {
		if !strings.Contains(string(steps), want) {
			t.Errorf("the dump does not say %q:\n%s", want, steps)
		}
	}
}
