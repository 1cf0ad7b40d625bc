// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/passes"
)

func TestInitRefusesWhatItCannotSetUp(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		opt  epl.Option
		want string // a message that ends in … goes on with what GoMLX says
	}{
		{"an unknown inner backend", nil, epl.WithInner("nope"),
			`epl: WithInner("nope"): the program has no backend "nope"; it has ["cpu" "go"]; a backend other than "go" and "cpu" must be imported by the program`},
		{"an unknown inner backend of the environment", map[string]string{"GOMLX_BACKEND": "nope:x"}, nil,
			`epl: GOMLX_BACKEND=nope:x: the program has no backend "nope"; it has ["cpu" "go"]; a backend other than "go" and "cpu" must be imported by the program`},
		{"a wrong option of the inner backend", nil, epl.WithInner("go:nonsense"),
			`epl: WithInner("go:nonsense"): the inner backend cannot be made: unknown configuration option "nonsense"…`},
		{"a wrong option in the environment", map[string]string{"GOMLX_BACKEND": "go:nonsense"}, nil,
			`epl: GOMLX_BACKEND=go:nonsense: the inner backend cannot be made: unknown configuration option "nonsense"…`},
		{"itself as the inner backend", nil, epl.WithInner("epl"), `epl: the inner backend cannot be EPL itself ("epl")`},
		{"no device", nil, epl.WithLocalDevices(0), "epl: WithLocalDevices(0): a worker needs at least one device"},
		{"a negative number of devices", nil, epl.WithLocalDevices(-1), "epl: WithLocalDevices(-1): a worker needs at least one device"},
		{"far too many devices", nil, epl.WithLocalDevices(100000), "epl: WithLocalDevices(100000): a worker has at most 1024 devices, because each " +
			"has threads and memory of its own; ask for fewer, or use more workers"},
		{"a place to meet without workers", map[string]string{"EPL_RDZV": "first://a:1"}, nil,
			`epl: EPL_RDZV="first://a:1" is set, but EPL_NUM_WORKERS is not; set both, or neither`},
		{"half of torchrun's variables", map[string]string{"RANK": "1"}, nil,
			`epl: RANK="1" is set, but WORLD_SIZE is not; torchrun sets both: set both, or neither`},
		{"torchrun's variables without a token", map[string]string{"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}, nil,
			"epl: torchrun started 2 workers on several machines, and EPL_TOKEN is not set; before starting them run export EPL_TOKEN=$(openssl rand -hex 32)"},
		{"two workers", map[string]string{"EPL_NUM_WORKERS": "2", "EPL_WORKER_INDEX": "0"}, nil,
			"epl: EPL_NUM_WORKERS is 2, but EPL_RDZV does not say where the workers meet; start them with epl-launch, " +
				"or set it to first://HOST:PORT, a port of the first worker's host, and EPL_TOKEN to a secret, in all of them"},
		{"a device that does not exist", map[string]string{"EPL_CLUSTER_RUN_VISIBLE_DEVICES": "1"}, nil,
			"epl: cluster.run_visible_devices names device 1, but worker 0 has 1 device; use 0"},
		{"a split as default", nil, epl.WithDefaultStrategy(epl.Split(1)),
			"epl: WithDefaultStrategy: a split cannot be the default strategy: give it its own scope by epl.With"},
		{"an unknown pass", map[string]string{"EPL_PASSES": "-commn"}, nil,
			`epl: there is no pass "commn" (in "-commn"); write all, none, or names, with - in front to switch off: …`},
		{"an unknown pass in code", nil, epl.WithPasses("fast"),
			`epl: there is no pass "fast" (in "fast"); write all, none, or names, with - in front to switch off: …`},
		{"an unknown instruction set", map[string]string{"EPL_CPU_ISA": "sse9"}, nil,
			"epl: EPL_CPU_ISA=sse9: there is no such instruction set; this CPU has portable…"},
		{"an unknown configuration variable", map[string]string{"EPL_ZERO_LEVL": "v1"}, nil,
			"epl: unknown configuration variable EPL_ZERO_LEVL in the environment (did you mean EPL_ZERO_LEVEL?)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			var opts []epl.Option
			if test.opt != nil {
				opts = append(opts, test.opt)
			}
			_, err := epl.Init(nil, opts...)
			if want, open := strings.CutSuffix(test.want, "…"); open && err != nil && strings.HasPrefix(err.Error(), want) {
				return
			}
			wantError(t, err, test.want)
		})
	}
}

func TestTheNumberOfDevicesMayComeFromTheEnvironmentAlone(t *testing.T) {
	t.Setenv("EPL_DEVICES_PER_WORKER", "3")
	env, err := epl.Init(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	if n := env.Cluster().TotalDevices(); n != 3 {
		t.Errorf("%d devices", n)
	}
}

func TestInitTakesOnlyAConfigThatNewConfigBuilt(t *testing.T) {
	_, err := epl.Init(&epl.Config{})
	wantError(t, err, "epl: this Config was not built by NewConfig, so its empty fields are not defaults; "+
		"build it with NewConfig, then change its fields")
}

// Every key stands in this list, first in its row, with a value that is not its default and what else it needs.
var works = []struct {
	key    string
	params map[string]any
}{
	{"pipeline.num_micro_batch", map[string]any{"pipeline.num_micro_batch": 4}},
	{"pipeline.num_stages", map[string]any{"pipeline.num_stages": 2, "auto.auto_parallel": true}},
	{"pipeline.strategy", map[string]any{"pipeline.strategy": "PreferForward"}},
	{"pipeline.stages_per_device", map[string]any{"pipeline.stages_per_device": 2, "pipeline.strategy": "Interleaved"}},
	{"gradient_checkpoint.type", map[string]any{"gradient_checkpoint.type": "auto"}},
	{"gradient_checkpoint.check_gradients", map[string]any{"gradient_checkpoint.check_gradients": true, "gradient_checkpoint.type": "auto"}},
	{"gradient_checkpoint.end_taskgraph", map[string]any{"gradient_checkpoint.end_taskgraph": 0, "gradient_checkpoint.type": "auto"}},
	{"zero.level", map[string]any{"zero.level": "v1"}},
	{"offload.level", map[string]any{"offload.level": "v0"}},
	{"amp.level", map[string]any{"amp.level": "O1"}},
	{"amp.debug_log", map[string]any{"amp.debug_log": true, "amp.level": "O1"}},
	{"amp.loss_scale", map[string]any{"amp.loss_scale": 128, "amp.level": "O1"}},
	{"amp.dtype", map[string]any{"amp.dtype": "bfloat16", "amp.level": "O1"}},
	{"amp.tf32", map[string]any{"amp.tf32": true}},
	{"optimizer.num_apply_group", map[string]any{"optimizer.num_apply_group": 30}},
	{"cluster.device_place_prefer_intra_node", map[string]any{"cluster.device_place_prefer_intra_node": false}},
	{"cluster.run_visible_devices", map[string]any{"cluster.run_visible_devices": "0"}},
	{"cluster.colocate_split_and_replicate", map[string]any{"cluster.colocate_split_and_replicate": true}},
	{"cluster.device_memory", map[string]any{"cluster.device_memory": "1GiB"}},
	{"cluster.description", map[string]any{"cluster.description": "1x1xV100-32"}},
	{"cluster.measure", map[string]any{"cluster.measure": true}},
	{"cluster.cores_per_device", map[string]any{"cluster.cores_per_device": 1}},
	{"communication.num_communicators", map[string]any{"communication.num_communicators": 4}},
	{"communication.sparse_as_dense", map[string]any{"communication.sparse_as_dense": true}},
	{"communication.gather_factors", map[string]any{"communication.gather_factors": false}},
	{"communication.max_splits", map[string]any{"communication.max_splits": 8}},
	{"communication.fp16", map[string]any{"communication.fp16": true}},
	{"communication.fp16_scale", map[string]any{"communication.fp16_scale": 64, "communication.fp16": true}},
	{"communication.clip_after_allreduce", map[string]any{"communication.clip_after_allreduce": true}},
	{"communication.gradients_reduce_method", map[string]any{"communication.gradients_reduce_method": "sum"}},
	{"communication.timeout", map[string]any{"communication.timeout": "10s"}},
	{"communication.checksum", map[string]any{"communication.checksum": false}},
	{"communication.streams", map[string]any{"communication.streams": 4}},
	{"communication.backend", map[string]any{"communication.backend": "mpi"}}, // which one worker does not need
	{"io.slicing", map[string]any{"io.slicing": true}},
	{"io.unbalanced_io_slicing", map[string]any{"io.unbalanced_io_slicing": true, "io.slicing": true}},
	{"io.drop_last_files", map[string]any{"io.drop_last_files": true, "io.slicing": true}},
	{"auto.auto_parallel", map[string]any{"auto.auto_parallel": true}},
	{"auto.global_batch", map[string]any{"auto.auto_parallel": true, "auto.global_batch": 8}},
	{"reliability.check_every", map[string]any{"reliability.check_every": 1}},
	{"reliability.nan", map[string]any{"reliability.nan": "skip"}},
	{"recovery.copies", map[string]any{"recovery.copies": 0}}, // 1 needs a launcher: internal/elastic
}

func TestEveryKeyDoesSomething(t *testing.T) {
	t.Setenv("GOMLX_BACKEND", "cpu") // cluster.cores_per_device is of this one only
	listed := map[string]bool{}
	for _, ask := range works {
		listed[ask.key] = true
		if env, err := initWith(t, ask.params); err != nil {
			t.Errorf("%s is refused: %v", ask.key, err)
		} else {
			_ = env.Close()
		}
	}
	defaults, err := epl.NewConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range defaults.Entries() {
		if !listed[entry.Key] {
			t.Errorf("%s is not in the list", entry.Key)
		}
	}
}

func initWith(t *testing.T, params map[string]any) (*epl.Env, error) {
	t.Helper()
	cfg, err := epl.NewConfig(params)
	if err != nil {
		t.Fatal(err)
	}
	return epl.Init(cfg)
}

func TestNCCLNeedsGPUs(t *testing.T) {
	t.Setenv("EPL_COMMUNICATION_BACKEND", "NCCL")
	_, err := epl.Init(nil, epl.WithInner("go"))
	wantError(t, err, `epl: communication.backend is "nccl", which is for GPUs, but the inner backend is "go", not "xla:cuda"; change that, or use "auto"`)
}

// A plan for GPUs is made on any machine.
func TestPlanningForNCCLNeedsNoGPUs(t *testing.T) {
	t.Setenv("EPL_COMMUNICATION_BACKEND", "nccl")
	t.Setenv(epl.EnvPlanOut, filepath.Join(t.TempDir(), "plan.json"))
	for _, inner := range []string{"go", "cpu"} {
		env, err := epl.Init(nil, epl.WithInner(inner))
		if err != nil {
			t.Fatal(err)
		}
		if err := env.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Without the engine, or without anything, programs run on GoMLX's backend as they are.
func TestPassesSwitchTheEngineForCPUs(t *testing.T) {
	const engine = "EPL's engine for CPUs"
	for spec, want := range map[string]bool{"": true, "none,engine": true, "-views,-in-place": true, "none": false, "-engine": false} {
		env := newEnv(t, nil, epl.WithInner("cpu"), epl.WithPasses(spec))
		if got := env.Backend().Description(); strings.Contains(got, engine) != want {
			t.Errorf("%q: %s", spec, got)
		}
		if err := build(env.Backend(), func(x *Node) *Node { return Add(Sin(x), Sin(x)) }); err != nil {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

func TestPassesOfTheEnvironmentAndOfCodeAddUp(t *testing.T) {
	t.Setenv(epl.EnvPasses, "none,common")
	dir := filepath.Join(dumpDir(t), "made", "by", "EPL")
	t.Setenv(epl.EnvDump, dir)
	env := newEnv(t, nil, epl.WithPasses("dead-code"))
	if err := build(env.Backend(), func(x *Node) *Node { return Add(Sin(x), Sin(x)) }); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"00-recorded.txt"}
	for _, pass := range passes.Table {
		if pass.Needed || pass.Name == "dead-code" || pass.Name == "common" {
			want = append(want, fmt.Sprintf("%02d-%s.txt", len(want), pass.Name))
		}
	}
	if len(files) < len(want) {
		t.Fatalf("there are %q, want one for each of %q", files, want)
	}
	for i, stage := range want {
		if !strings.HasSuffix(files[i], stage) {
			t.Fatalf("stage %d is not %s: %q", i, stage, files)
		}
	}
	text, err := os.ReadFile(files[len(want)-1])
	if err != nil || strings.Count(string(text), " = Sin(") != 1 {
		t.Errorf("after the last pass (%v):\n%s", err, text)
	}
}

func TestADumpOrTimelineThatCannotBeWrittenIsAnErrorOfInit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for variable, path := range map[string]string{epl.EnvDump: filepath.Join(file, "dump"), epl.EnvTrace: filepath.Join(file, "trace.json")} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, path)
			if _, err := epl.Init(nil); err == nil || !strings.HasPrefix(err.Error(), "epl: "+variable) || !strings.Contains(err.Error(), file) {
				t.Errorf("Init: %v", err)
			}
		})
	}
	for variable, path := range map[string]string{epl.EnvDump: file, epl.EnvTrace: filepath.Dir(file)} {
		t.Run(variable+" is of another kind", func(t *testing.T) {
			t.Setenv(variable, path)
			if _, err := epl.Init(nil); err == nil || !strings.Contains(err.Error(), "a directory; name") {
				t.Errorf("Init: %v", err)
			}
		})
	}
}

func TestVariablesThatAreNearlyEPLsAreNamed(t *testing.T) {
	t.Setenv("EPL_DEVICE_PER_WORKER", "2")
	t.Setenv("EPL_COLOUR", "blue") // somebody else's
	said := logged(func() { newEnv(t, nil) })
	if want := "epl: the variable EPL_DEVICE_PER_WORKER is not used; did you mean EPL_DEVICES_PER_WORKER?"; !strings.Contains(said, want) || strings.Contains(said, "COLOUR") {
		t.Errorf("got %q, want %q only", said, want)
	}
}
