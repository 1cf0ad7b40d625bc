// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// newEnv makes EPL on one device; colocate lets all TaskGraphs share it.
func newEnv(t *testing.T, colocate bool) *epl.Env {
	t.Helper()
	cfg, err := epl.NewConfig(map[string]any{"cluster.colocate_split_and_replicate": colocate})
	if err != nil {
		t.Fatal(err)
	}
	env, err := epl.Init(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	return env
}

func modelNamed(t *testing.T, name string) equiv.Model {
	t.Helper()
	for _, m := range equiv.Models() {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("there is no model %q", name)
	return equiv.Model{}
}

func explain(t *testing.T, env *epl.Env) string {
	t.Helper()
	var s strings.Builder
	if err := env.Explain(&s); err != nil {
		t.Fatal(err)
	}
	return s.String()
}

// sourceLine finds lines of equiv's models, which move whenever that file is edited.
var sourceLine = regexp.MustCompile(`(models\.go):[0-9]+`)

func TestExplainReadsAsInTheGoldenFiles(t *testing.T) {
	for _, c := range []struct {
		model, file string
		optimizer   optimizer.Interface
	}{
		{"skip", "explain-skip-sgd.txt", optimizer.StochasticGradientDescent()},
		{"mlp-batchnorm", "explain-mlp-batchnorm-adam.txt", optimizer.Adam().Done()},
	} {
		t.Run(c.model, func(t *testing.T) {
			env := newEnv(t, true)
			if _, err := equiv.Train(env.Backend(), modelNamed(t, c.model), epl.Optimizer(c.optimizer), 1); err != nil {
				t.Fatalf("%+v", err)
			}
			got := sourceLine.ReplaceAllString(explain(t, env), "$1:N")
			path := filepath.Join("testdata", c.file)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("Explain differs from %s (rewrite it with -update if that is meant):\n%s", path, got)
			}
		})
	}
}

func TestExplainSaysSoBeforeAnyProgramIsCompiled(t *testing.T) {
	if got := explain(t, newEnv(t, true)); got != "no program was compiled yet\n" {
		t.Error(got)
	}
}

// pageModel is what the test needs of the JSON in a page.
type pageModel struct {
	Stages []struct {
		Name, File string
		Ops        int
	}
	Slots [][]struct {
		K, A, Z, I int
		O, N       string
	}
}

func readPage(t *testing.T, path string) *pageModel {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), `<script type="application/json" id="model">`)
	encoded, _, _ := strings.Cut(rest, `</script>`)
	var m pageModel
	if err := json.Unmarshal([]byte(encoded), &m); err != nil {
		t.Fatal(err)
	}
	return &m
}

func TestThePageSaysTheSameAsTheTextFilesBesideIt(t *testing.T) {
	for _, name := range []string{"mlp-batchnorm", "transformer-checkpoint"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv(epl.EnvDump, dir)
			env := newEnv(t, true)
			if _, err := equiv.Train(env.Backend(), modelNamed(t, name), epl.Optimizer(optimizer.Adam().Done()), 1); err != nil {
				t.Fatalf("%+v", err)
			}
			pages, err := filepath.Glob(filepath.Join(dir, "*.html"))
			if err != nil || len(pages) != 2 {
				t.Fatalf("pages %q, %v", pages, err)
			}
			for _, page := range pages {
				comparePage(t, dir, readPage(t, page))
				if text := explain(t, env); !strings.Contains(text, "page: "+page) {
					t.Errorf("Explain does not name %s", page)
				}
			}
			if texts, _ := filepath.Glob(filepath.Join(dir, "*.txt")); len(texts) != 2*len(readPage(t, pages[0]).Stages) {
				t.Errorf("text files: %q", texts)
			}
		})
	}
}

func comparePage(t *testing.T, dir string, m *pageModel) {
	t.Helper()
	for i, s := range m.Stages {
		text, err := os.ReadFile(filepath.Join(dir, s.File))
		if err != nil {
			t.Fatal(err)
		}
		p, err := ir.Parse(string(text))
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for _, op := range p.Main.Ops { // these models have no closures
			var in []string
			for _, v := range op.Inputs {
				in = append(in, strings.TrimPrefix(v.String(), "%"))
			}
			want = append(want, fmt.Sprintf("%d %s %s", op.ID, op.Type(), strings.Join(in, " ")))
		}
		for _, slot := range m.Slots {
			for _, l := range slot {
				if l.K == 0 && l.A <= i && i < l.Z {
					got = append(got, fmt.Sprintf("%d %s %s", l.I, l.O, l.N))
				}
			}
		}
		if s.Ops != len(want) || !slices.Equal(got, want) {
			t.Errorf("stage %s: the page has %d ops, the text %d, and they are not the same", s.Name, len(got), len(want))
		}
	}
}

func TestARefusedProgramIsDumpedAsRecorded(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(epl.EnvDump, dir)
	env := newEnv(t, false)
	_, err := equiv.Train(env.Backend(), modelNamed(t, "skip"), epl.Optimizer(optimizer.StochasticGradientDescent()), 1)
	if err == nil {
		t.Fatal("three TaskGraphs were placed on one device")
	}
	texts, _ := filepath.Glob(filepath.Join(dir, "01-*-00-recorded.txt"))
	pages, _ := filepath.Glob(filepath.Join(dir, "01-*.html"))
	if len(texts) != 1 || len(pages) != 1 {
		t.Fatalf("text %q, pages %q", texts, pages)
	}
	page, err := os.ReadFile(pages[0])
	if err != nil {
		t.Fatal(err)
	}
	if reason := "a replica needs 3 devices"; !strings.Contains(string(page), reason) || !strings.Contains(explain(t, env), "REFUSED: epl: "+reason) {
		t.Error("the page or Explain do not say why")
	}
}

func TestProgramsOfTheSameNameGetFilesOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(epl.EnvDump, dir)
	env := newEnv(t, true)
	for _, x := range [][]float32{{1}, {1, 2}} { // two shapes, two programs
		exec, err := graph.NewExec(env.Backend(), func(x *graph.Node) *graph.Node { return graph.Sqrt(x) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := exec.WithName("root").Call(x); err != nil {
			t.Fatal(err)
		}
	}
	pages, _ := filepath.Glob(filepath.Join(dir, "*.html"))
	if len(pages) != 2 || !strings.HasPrefix(filepath.Base(pages[0]), "01-root") || !strings.HasPrefix(filepath.Base(pages[1]), "02-root") {
		t.Errorf("pages: %q", pages)
	}
}
