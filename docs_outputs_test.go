// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/rendezvous"
)

// outputs makes what documents show between <!-- output: NAME --> and <!-- end -->, by name.
func outputs(t *testing.T) map[string]string {
	t.Helper()
	made := map[string]string{"passes": passTable(), "switches": switchTable(), "placements": placements()}
	tour(t, made)
	orders(t, made)
	memoryTable(t, made)
	masks(t, made)
	notFinite(t, made)
	messages(t, made)
	var said strings.Builder
	for _, name := range gathered {
		said.WriteString(strings.Split(made["error "+name], "\n")[1] + "\n")
		delete(made, "error "+name)
	}
	checkMessages(t, said.String())
	for name, text := range made {
		made[name] = checkout.ReplaceAllString(text, "epl/$1")
	}
	return made
}

// gathered are the messages that say what to do: docs/errors.md points at testdata/messages.txt.
var gathered = []string{
	"nesting", "empty", "split", "interleaved", "stages per device", "annotated", "uneven stages", "too many stages", "global batch", "checkpoint", "accumulate",
	"key", "micro-batches", "passes", "nccl", "gomlx backend", "trace steps", "devices", "workers", "half a job", "torchrun", "closed", "dataset",
	"placement", "uneven", "cycle", "small batch", "odd batch", "no way", "optimizer",
}

// checkMessages compares them with the file; -update rewrites it.
func checkMessages(t *testing.T, said string) {
	t.Helper()
	const file = "testdata/messages.txt"
	if *update {
		if err := os.WriteFile(file, []byte(said), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != said {
		t.Errorf("%s is not what the code says (%v); run: go test -run Documents -update .\ngot:\n%s", file, err, said)
	}
}

// checkout matches the folder that sources of this package show: it depends on where the repository was cloned to.
var checkout = regexp.MustCompile(`\b[\w.-]+/(\w+_test\.go:\d+)`)

func fenced(language, text string) string {
	return fmt.Sprintf("```%s\n%s\n```\n", language, strings.TrimRight(text, "\n"))
}

// passTable lists the passes as Markdown.
func passTable() string {
	var b strings.Builder
	b.WriteString("| pass | why | bits | off |\n|---|---|---|---|\n")
	for _, p := range passes.Table {
		results, off, why := "", "", p.Why
		if p.Exact {
			results = "same"
		}
		if p.XLA {
			why = "(XLA) " + why
		}
		switch {
		case p.Needed:
			off = "no"
		case p.Asked:
			off = "by default"
		}
		fmt.Fprintf(&b, "| [%s](../passes/testdata/%s.txt) | %s | %s | %s |\n", p.Name, p.Name, why, results, off)
	}
	return b.String()
}

// switchTable lists the switches of the engine for CPUs as Markdown.
func switchTable() string {
	var b strings.Builder
	b.WriteString("| switch | what it is for | bits |\n|---|---|---|\n")
	for _, x := range passes.Switches {
		results := ""
		if x.Exact {
			results = "same"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", x.Name, x.Why, results)
	}
	return b.String()
}

// placements shows how devices are dealt to TaskGraphs, as Markdown.
func placements() string {
	var b strings.Builder
	b.WriteString("| devices of each worker | devices of each TaskGraph | model replicas | virtual devices |\n|---|---|---|---|\n")
	for _, row := range []struct {
		workers, taskGraphs []int
		colocate            bool
	}{
		{[]int{4}, []int{1}, false},
		{[]int{4}, []int{1, 1}, false},
		{[]int{4, 4}, []int{2, 2}, false},
		{[]int{4}, []int{1, 1, 1}, false},
		{[]int{1}, []int{1, 1}, true},
	} {
		c, err := cluster.New(cluster.Spec{Devices: row.workers})
		if err != nil {
			panic(err)
		}
		var tgs []cluster.TaskGraph
		for _, k := range row.taskGraphs {
			tgs = append(tgs, cluster.TaskGraph{Devices: k})
		}
		asks := strings.Trim(fmt.Sprint(row.taskGraphs), "[]")
		if row.colocate {
			asks += ", colocated"
		}
		p, err := cluster.Place(c, tgs, cluster.Options{PreferIntraNode: true, Colocate: row.colocate})
		replicas, where := "", fmt.Sprint(err)
		if err == nil {
			replicas, where = fmt.Sprint(p.Replicas), "`"+p.String()+"`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strings.Trim(fmt.Sprint(row.workers), "[]"), asks, replicas, where)
	}
	return b.String()
}

// tour compiles the worked example of docs/architecture.md and shows what became of it.
func tour(t *testing.T, made map[string]string) {
	t.Helper()
	dir := dumpDir(t)
	env := newEnv(t, nil)
	exec, err := model.NewExec(env.Backend(), model.NewStore(), tourStep)
	if err != nil {
		t.Fatal(err)
	}
	x, y := [][]float32{{1, 0, 0, 0}, {0, 1, 0, 0}}, [][]float32{{1, 2, 3}, {4, 5, 6}}
	if _, err := exec.WithName("step").Call(x, y); err != nil {
		t.Fatal(err)
	}
	t.Setenv(epl.EnvDump, "")

	files, err := filepath.Glob(filepath.Join(dir, "01-*.txt")) // sorted: the order of the passes
	if err != nil {
		t.Fatal(err)
	}
	var before []string
	var changes strings.Builder
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"),
			func(line string) bool { return strings.HasPrefix(line, "passes ") }) // they grow with every file
		for i := range lines {
			lines[i] = forwardOp.ReplaceAllString(lines[i], "by vjp ") // later passes do not need it, and drop it
		}
		if i == 0 {
			made["tour recorded"] = fenced("text", shortened(string(text)))
		} else if d := difference(before, lines); d != "" {
			fmt.Fprintf(&changes, "@@ %s @@\n%s", stageName.FindStringSubmatch(file)[1], d)
		}
		before = lines
	}
	made["tour passes"] = fenced("diff", changes.String())
}

// forwardOp finds of which op a backward op is the gradient.
var forwardOp = regexp.MustCompile(`by vjp of %\d+ `)

// skipped finds ops of the worked example that show nothing that others do not.
var skipped = regexp.MustCompile(`(?m)(^  %(?:5|6|7|9|10|11|12|13|14|15|16|17|18|19|20|22|23|24|25|26|27) = .*\n)+`)

// shortened leaves these ops out.
func shortened(program string) string { return skipped.ReplaceAllString(program, "  …\n") }

// stageName finds the pass in the name of a dumped file.
var stageName = regexp.MustCompile(`-\d\d-([a-z-]+)\.txt$`)

// difference lists the lines that went and those that came. Lines keep their order from pass to pass.
func difference(before, after []string) string {
	var b strings.Builder
	for _, line := range before {
		if !slices.Contains(after, line) {
			b.WriteString("- " + strings.TrimSpace(line) + "\n")
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			b.WriteString("+ " + strings.TrimSpace(line) + "\n")
		}
	}
	return b.String()
}

var lineHere = regexp.MustCompile(`\b[\w.-]+/docs_\w+_test\.go:(\d+)`)

// asInAModel writes the lines of a test in a message as those of a model, so that documents stay the same when
// something changes above them.
func asInAModel(message string) string {
	least := math.MaxInt
	number := func(found string) int {
		n, _ := strconv.Atoi(lineHere.FindStringSubmatch(found)[1])
		return n
	}
	for _, found := range lineHere.FindAllString(message, -1) {
		least = min(least, number(found))
	}
	return lineHere.ReplaceAllStringFunc(message, func(found string) string {
		return fmt.Sprintf("mymodel/model.go:%d", 12+number(found)-least)
	})
}

// messages provokes the errors that docs/errors.md explains.
func messages(t *testing.T, made map[string]string) {
	t.Helper()
	message := func(name string, err error) {
		if err == nil {
			t.Fatalf("%s is no error", name)
		}
		made["error "+name] = fenced("text", asInAModel(err.Error()))
	}
	backend := newEnv(t, nil).Backend()
	message("nesting", build(backend, func(x *Node) *Node {
		epl.With(x, epl.Replicate(1, "encoder"), func() {
			epl.With(x, epl.Replicate(1, "layer_0"), func() { x = Tanh(x) })
		})
		return x
	}))
	message("optimizer", step(trainer(backend, epl.Optimizer(fromLoss{sgd()}), nil)))
	tr := trainer(backend, epl.Optimizer(sgd()), nil)
	if err := tr.AccumulateGradients(4); err != nil {
		t.Fatal(err)
	}
	message("accumulate", step(tr))
	_, err := epl.Init(nil, epl.WithPasses("-commn"))
	message("passes", err)
	_, err = epl.NewConfig(map[string]any{"pipeline.num_microbatch": 4})
	message("key", err)
	cfg, err := epl.NewConfig(map[string]any{"communication.backend": "nccl"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = epl.Init(cfg, epl.WithInner("cpu"))
	message("nccl", err)
	closed := newEnv(t, nil)
	for batch, err := range closed.Dataset(samples{5, 3, func(*train.Batch) error { return errors.New("unexpected EOF") }}).Iter() {
		if err != nil {
			message("dataset", err)
			break
		}
		_ = batch.Finalize()
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	message("closed", build(closed.Backend(), func(x *Node) *Node { return x }))
	pipelineMessages(t, message)
	batchMessages(t, message)
	memoryMessages(t, message)
	t.Setenv(compute.ConfigEnvVar, "epl:devices=2")
	_, err = epl.Init(nil)
	message("gomlx backend", err)
	t.Setenv(compute.ConfigEnvVar, "")
	t.Setenv(epl.EnvTraceSteps, "3:6")
	_, err = epl.Init(nil)
	message("trace steps", err)
	t.Setenv(epl.EnvTraceSteps, "")
	_, err = epl.Init(nil, epl.WithLocalDevices(100000))
	message("devices", err)
	for name, variables := range map[string][]string{
		"half a job": {rendezvous.EnvURL, "first://node1:29870"},
		"torchrun":   {"RANK", "1"},
		"workers":    {cluster.EnvNumWorkers, "2", cluster.EnvWorkerIndex, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			for i := 0; i < len(variables); i += 2 {
				t.Setenv(variables[i], variables[i+1])
			}
			_, err := epl.Init(nil)
			message(name, err)
		})
	}
}
