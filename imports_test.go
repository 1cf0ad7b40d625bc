// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/easyparallel/epl"

// mayImport places every package of this module: it lists the packages of ours that it may import, without tests.
// Imports point down the pipeline, so that a reader can understand a package without those above it, and so that the
// planner, the simulator and the launcher can use the lower ones without GoMLX's trainer or a user's model.
//
// A package that is not in the table is an error: decide where a new one belongs, and write it down here. A name that
// ends in "/..." stands for all packages below it.
var mayImport = map[string][]string{
	// What everybody may import, and what imports nothing of ours.
	"ir":                {},
	"ir/analysis":       {"ir"},
	"config":            {"internal/near"},
	"cluster":           {"internal/words"},
	"trace":             {"internal/words"},
	"faults":            {"internal/words"},
	"internal/version":  {},
	"internal/checked":  {},
	"internal/tfrecord": {},
	"internal/cores":    {},
	"internal/hostmem":  {},
	"internal/gen":      {},
	"internal/near":     {},
	"internal/words":    {},
	"internal/chrome":   {}, // checks timelines, in tests
	"internal/jobtest":  {}, // helpers of tests
	"internal/browser":  {}, // opens pages, in tests
	"internal/doctest":  {}, // reads documents, in tests

	// The comparison of GoMLX's own tests on EPL with those on its plain backend.
	"internal/gomlxtests": {},

	// Collectives. Transports do not know each other: comm puts them together.
	"comm/internal/transport": {"internal/cores"},
	"comm/internal/kernel":    {"comm/internal/transport"},
	"comm/internal/elements":  {"comm/internal/transport"}, // for tests
	"comm/inproc":             {"comm/internal/kernel", "comm/internal/transport"},
	"comm/shm":                {"comm/internal/kernel", "comm/internal/transport"},
	"comm/tcp":                {"comm/internal/kernel", "comm/internal/transport", "internal/checked"},
	"comm/mpi":                {"comm/internal/kernel", "comm/internal/transport"},
	"comm/hybrid":             {"comm/internal/kernel", "comm/internal/transport"},
	"comm":                    {"comm/internal/kernel", "comm/internal/transport", "comm/inproc", "comm/shm", "comm/tcp", "comm/mpi", "comm/hybrid"},

	"wire": {},

	// What a training tells of itself.
	"metrics":            {"internal/tfrecord"},
	"metrics/prometheus": {"metrics"},
	"dashboard":          {"internal/version"},

	// Variables as pieces, and files of them. They know no plan, and nobody's devices.
	"state":      {},
	"checkpoint": {"state"},
	"recovery":   {"checkpoint", "state"}, // the same in memory
	// Other formats of them, GoMLX's among these.
	"checkpoint/convert": {"checkpoint", "state", "internal/version"},
	// Files of the Hugging Face Hub. It knows no Env.
	"hf": {"checkpoint", "checkpoint/convert"},

	// The binding of XLA. It knows nothing of EPL's programs.
	"pjrt/internal/capi": {},
	"pjrt/find":          {},
	"pjrt":               {"pjrt/internal/capi", "pjrt/find", "internal/words"},
	"pjrt/pjrttest":      {"pjrt", "pjrt/internal/capi"}, // for tests
	"pjrt/profile":       {},
	"internal/pjrtgen":   {},

	// The kernels of the CPU engine.
	"cpu/isa":    {},
	"cpu/kernel": {"cpu/isa"},
	"cpu/loop":   {"cpu/isa"},
	"cpu/pool":   {"cpu/kernel"},
	"cpu/gemm":   {"cpu/isa", "cpu/kernel", "cpu/pool"},

	// How workers find each other and stay in step.
	"rendezvous": {"wire", "internal/version"},
	"launch":     {"cluster", "dashboard", "rendezvous", "wire", "internal/cores", "internal/hostmem", "internal/version", "internal/words"},
	"serve":      {"wire", "internal/checked"},
	"drill":      {"checkpoint", "faults", "launch", "internal/words"},
	"doctor":     {"cluster", "config", "cpu/isa", "launch", "pjrt/find", "internal/cores", "internal/version", "internal/words"},
	"worker":     {"cluster", "config", "comm", "faults", "rendezvous", "serve", "internal/checked", "internal/version"},

	// What the pipeline decides by.
	"cost":  {"ir", "config", "internal/near"},
	"shard": {"ir", "ir/analysis", "cost"},
	// Measures this machine, on what programs run on.
	"cost/links":     {"cost", "comm"},
	"cost/calibrate": {"ir", "cost", "cost/links", "emit", "cpu", "comm", "rendezvous", "wire", "internal/cores"},

	// What one device runs of what all do.
	"exec/lower": {"ir"},

	// Plays lists of whatever.
	"schedule/play": {},

	// The pipeline. They meet in the IR and do not know each other.
	"record":           {"ir"},
	"passes":           {"ir", "ir/analysis", "cost", "shard", "internal/words"},
	"emit":             {"ir"},
	"hlo":              {"ir"},                                                                                                                                      // the same for XLA, as text
	"schedule":         {"ir", "ir/analysis", "emit", "exec/lower", "schedule/play"},                                                                                // emit for what devices plan of memory
	"simulate":         {"ir", "cost", "emit", "schedule", "trace", "internal/words"},                                                                               // plays what schedule made, in time
	"plan":             {"config", "cluster", "ir", "ir/analysis", "cost", "shard", "passes", "emit", "schedule", "simulate", "internal/version", "internal/words"}, // decides, and has passes and schedule apply it
	"cpu":              {"ir", "emit", "cpu/gemm", "cpu/isa", "cpu/kernel", "cpu/loop", "cpu/pool"},                                                                 // compiles what emit would
	"exec":             {"ir", "schedule", "emit", "trace"},                                                                                                         // what a runner is
	"exec/local":       {"ir", "cost", "cost/links", "exec", "exec/lower", "schedule", "emit", "comm", "state", "trace", "worker"},                                  // the end of it: it executes what the others made
	"exec/xla":         {"ir", "emit", "exec", "cost", "hlo", "pjrt", "pjrt/profile", "internal/words"},
	"exec/xla/xlatest": {"ir", "emit", "exec", "exec/xla", "pjrt", "pjrt/pjrttest"}, // for tests
	"data":             {"checkpoint", "exec/local"},
	"data/source":      {"data", "internal/tfrecord"},

	// Who puts the pipeline together, and the face of it.
	"explain": {"config", "cluster", "cost", "ir", "plan", "passes", "emit", "schedule", "simulate", "internal/words"}, // data in, text out
	// Computes a program again, to find out what went wrong.
	"exec/replay": {"ir", "emit", "passes"},
	"compile":     {"exec/replay", "config", "cluster", "ir", "record", "plan", "passes", "emit", "schedule", "simulate", "explain", "faults", "trace", "exec", "worker", "internal/words"},
	"":            {"config", "cluster", "cost", "cpu", "cpu/isa", "exec", "ir", "record", "passes", "plan", "trace", "exec/local", "data", "internal/cores", "internal/hostmem", "internal/near", "internal/version", "internal/words", "compile", "simulate", "state", "checkpoint", "recovery", "faults", "metrics", "dashboard", "worker"},

	"xla": {"exec", "exec/xla", "pjrt"}, // registers GPUs

	"default": {"", "xla"}, // makes EPL the backend of GoMLX programs

	// Users of the whole. Nobody else imports the root.
	"internal/equiv":      {"", "config", "cluster", "ir", "record", "passes", "plan", "emit", "exec/local", "compile"}, // the test of the whole
	"internal/equiv/fuzz": {"internal/equiv"},                                                                           // a command
	"internal/rootcause":  {},                                                                                           // only tests
	"internal/elastic":    {},                                                                                           // only tests
	"cmd/...":             {"", "checkpoint", "checkpoint/convert", "state", "config", "cluster", "cost", "cost/calibrate", "dashboard", "doctor", "drill", "ir", "passes", "plan", "simulate", "trace", "launch", "internal/version", "internal/usage", "internal/words"},
	"internal/usage":      {"internal/near"}, // of commands
	"internal/procmem":    {},
	"examples/...":        {"", "xla", "internal/equiv", "internal/procmem", "checkpoint/convert", "cost", "data", "data/source", "hf", "examples/internal/bertlarge", "examples/internal/moe", "examples/internal/pictures", "examples/internal/residual"},
	"bench/...":           {"", "bench/meeting", "bench/transformer", "checkpoint", "cluster", "comm", "config", "cost", "cost/calibrate", "cpu", "emit", "ir", "passes", "pjrt", "plan", "rendezvous", "simulate", "state", "trace", "wire", "xla", "internal/cores", "internal/equiv", "internal/procmem", "launch", "metrics", "metrics/prometheus"},
}

// withCgo are the packages that may need cgo, because they link backends that do. All others build with CGO_ENABLED=0.
var withCgo = []string{"bench/..."}

type listedPackage struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
	CgoFiles   []string
}

// listPackages asks the go command for the packages of this module and all they need.
func listPackages(t *testing.T) (all []listedPackage) {
	t.Helper()
	// A walk over the files lets go test notice that they changed, and run the test again.
	if err := filepath.WalkDir(".", func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps,CgoFiles", "./...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // else packages hide what they need it for
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// ours returns the name of a package within the module: "" for the root.
func ours(path string) (name string, ok bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// matches tells whether a package is named by an entry of the table.
func matches(entry, name string) bool {
	above, tree := strings.CutSuffix(entry, "/...")
	return name == above || tree && strings.HasPrefix(name, above+"/")
}

func show(name string) string {
	if name == "" {
		return "the root"
	}
	return name
}

func TestImportsPointDownThePipeline(t *testing.T) {
	used := map[string]bool{}
	for _, p := range listPackages(t) {
		name, isOurs := ours(p.ImportPath)
		if !isOurs {
			continue
		}
		placed := false
		var allowed []string
		for entry, imports := range mayImport {
			if matches(entry, name) {
				placed, allowed = true, imports
				used[entry] = true
			}
		}
		if !placed {
			t.Errorf("%s has no place yet: put it into the table mayImport, with what it may import", show(name))
			continue
		}
		for _, path := range p.Imports {
			if imported, isOurs := ours(path); isOurs && !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s, which points up the pipeline: it may import %q", show(name), show(imported), allowed)
			}
		}
	}
	for entry := range mayImport {
		if !used[entry] {
			t.Errorf("the table has %s, but there is no such package", show(entry))
		}
	}
}

// What is built differently with MPI is in one package: everything else can be checked without it.
func TestOnlyOnePackageKnowsTheTagMPI(t *testing.T) {
	tag := regexp.MustCompile(`(?m)^//go:build .*\bmpi`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || filepath.Dir(path) == filepath.Join("comm", "mpi") {
			return err
		}
		text, err := os.ReadFile(path)
		if tag.Match(text) {
			t.Errorf("%s is built differently with the tag mpi: only package comm/mpi may be", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheCoreNeedsNoCgo(t *testing.T) {
	all := listPackages(t)
	needsCgo := map[string]bool{}
	for _, p := range all {
		substituted := p.Standard || strings.HasPrefix(p.ImportPath, "github.com/ebitengine/purego/") // their cgo parts have substitutes in Go
		needsCgo[p.ImportPath] = !substituted && len(p.CgoFiles) > 0
	}
	for _, p := range all {
		name, isOurs := ours(p.ImportPath)
		if !isOurs || slices.ContainsFunc(withCgo, func(entry string) bool { return matches(entry, name) }) {
			continue
		}
		for _, path := range append(p.Deps, p.ImportPath) {
			if needsCgo[path] {
				t.Errorf("%s needs %s, which needs cgo", show(name), path)
			}
		}
	}
}

// A first build compiles all that the first example needs: other modules are few, and a new one must be worth the seconds that it takes.
func TestTheFirstExampleNeedsFewModules(t *testing.T) {
	may := []string{
		"github.com/gomlx/gomlx/...", "github.com/gomlx/compute/...", // and what these need:
		"k8s.io/klog/v2/...", "github.com/go-logr/logr/...", "github.com/google/uuid", "golang.org/x/exp/constraints",
		"github.com/pkg/errors", "golang.org/x/sync/errgroup", "golang.org/x/sys/unix", "golang.org/x/sys/cpu",
		"sigs.k8s.io/yaml/...", "go.yaml.in/yaml/v2", // descriptions of clusters
		"google.golang.org/protobuf/encoding/protowire", "google.golang.org/protobuf/internal/...", // TensorBoard
	}
	all := listPackages(t)
	standard := map[string]bool{}
	for _, p := range all {
		standard[p.ImportPath] = p.Standard
	}
	example := slices.IndexFunc(all, func(p listedPackage) bool { return p.ImportPath == module+"/examples/quickstart" })
	for _, path := range all[example].Deps {
		_, isOurs := ours(path)
		if !isOurs && !standard[path] && !slices.ContainsFunc(may, func(entry string) bool { return matches(entry, path) }) {
			t.Errorf("examples/quickstart needs %s, which it may not", path)
		}
	}
	for _, entry := range may {
		if !slices.ContainsFunc(all[example].Deps, func(path string) bool { return matches(entry, path) }) {
			t.Errorf("examples/quickstart does not need %s any more", entry)
		}
	}
}
