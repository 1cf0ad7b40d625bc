// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"strings"
	"testing"
	"time"
)

// clearEnvironment hides the configuration of whoever runs the tests.
func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, variablePrefix) {
			t.Setenv(name, "") // empty counts as not set
		}
	}
}

// samples gives for every key a default, a value for the environment and another for code.
var samples = map[string]struct {
	def     any
	env     string
	fromEnv any
	code    any
	inCode  any
}{
	"pipeline.num_micro_batch":               {1, "4", 4, int64(8), 8},
	"pipeline.num_stages":                    {0, "2", 2, 3, 3},
	"pipeline.strategy":                      {"PreferBackward", "preferforward", "PreferForward", "PREFERBACKWARDOPTIMIZER", "PreferBackwardOptimizer"},
	"pipeline.stages_per_device":             {1, "2", 2, 3, 3},
	"gradient_checkpoint.type":               {"", "Auto", "auto", "Collection", "collection"},
	"gradient_checkpoint.end_taskgraph":      {-1, "0", 0, 1, 1},
	"gradient_checkpoint.check_gradients":    {false, "TRUE", true, false, false},
	"zero.level":                             {"", "V0", "v0", "v2", "v2"},
	"offload.level":                          {"", "V0", "v0", "", ""},
	"amp.level":                              {"", "o1", "O1", "O1", "O1"},
	"amp.debug_log":                          {false, "True", true, false, false},
	"amp.loss_scale":                         {LossScale{Dynamic: true}, "1024", LossScale{Value: 1024}, 0.5, LossScale{Value: 0.5}},
	"amp.dtype":                              {"float16", "BFloat16", "bfloat16", "FLOAT16", "float16"},
	"amp.tf32":                               {false, "true", true, false, false},
	"optimizer.num_apply_group":              {1, "4", 4, 2.0, 2},
	"cluster.device_place_prefer_intra_node": {true, "False", false, true, true},
	"cluster.run_visible_devices":            {"", "0, 2", "0,2", []int{3, 1}, "3,1"},
	"cluster.colocate_split_and_replicate":   {false, "true", true, false, false},
	"cluster.device_memory":                  {int64(0), "512MB", int64(512e6), 1 << 30, int64(1 << 30)},
	"cluster.description":                    {"", "/tmp/A.yaml", "/tmp/A.yaml", " 1x2xV100-32", "1x2xV100-32"},
	"cluster.measure":                        {false, "true", true, false, false},
	"cluster.cores_per_device":               {0, "2", 2, 4, 4},
	"communication.num_communicators":        {2, "1", 1, "3", 3},
	"communication.gather_factors":           {true, "false", false, "True", true},
	"communication.sparse_as_dense":          {false, "true", true, "False", false},
	"communication.max_splits":               {5, "24", 24, 15, 15},
	"communication.fp16":                     {false, "True", true, false, false},
	"communication.fp16_scale":               {128, "64", 64, 256, 256},
	"communication.clip_after_allreduce":     {false, "true", true, false, false},
	"communication.gradients_reduce_method":  {"mean", "SUM", "sum", "MEAN", "mean"},
	"communication.backend":                  {"auto", "MPI", "mpi", "nccl", "nccl"},
	"communication.timeout":                  {5 * time.Minute, "90s", 90 * time.Second, time.Hour, time.Hour},
	"communication.checksum":                 {true, "False", false, false, false},
	"communication.streams":                  {1, "4", 4, 2, 2},
	"io.slicing":                             {false, "true", true, false, false},
	"io.unbalanced_io_slicing":               {false, "true", true, false, false},
	"io.drop_last_files":                     {false, "true", true, false, false},
	"auto.auto_parallel":                     {false, "true", true, false, false},
	"auto.global_batch":                      {0, "64", 64, 32, 32},
	"recovery.copies":                        {0, "1", 1, 0, 0},
	"reliability.check_every":                {0, "100", 100, 1, 1},
	"reliability.nan":                        {"ignore", "SKIP", "skip", "Stop", "stop"},
}

// companions returns the params without which a key may not be set.
func companions(k *key) map[string]any {
	params := make(map[string]any)
	if k.needs != "" {
		needed := row(k.needs)
		params[k.needs] = true
		if words, ok := needed.typ.(enumType); ok {
			params[k.needs] = words[1]
		}
	}
	if k.name == "pipeline.stages_per_device" {
		params["pipeline.strategy"] = Interleaved
	}
	return params
}

func TestEveryKeyTakesCodeBeforeEnvironmentBeforeDefault(t *testing.T) {
	clearEnvironment(t)
	if len(samples) != len(keys) {
		t.Errorf("%d samples for %d keys", len(samples), len(keys))
	}
	for i := range keys {
		k := &keys[i]
		t.Run(k.name, func(t *testing.T) {
			sample, ok := samples[k.name]
			if !ok {
				t.Fatal("no sample")
			}
			check := func(params map[string]any, want any, from Source) {
				t.Helper()
				cfg, err := New(params)
				if err != nil {
					t.Fatal(err)
				}
				got, err := cfg.Get(k.name)
				if err != nil || got != want {
					t.Errorf("value %v (%v), want %v", got, err, want)
				}
				if source, err := cfg.Source(k.name); err != nil || source != from {
					t.Errorf("source %v (%v), want %v", source, err, from)
				}
				if err := cfg.Validate(); err != nil {
					t.Errorf("what New accepted is not valid: %v", err)
				}
			}
			check(nil, sample.def, Source{})

			t.Setenv(k.variable(), sample.env)
			check(companions(k), sample.fromEnv, Source{Environment, k.variable()})

			params := companions(k)
			params[k.name] = sample.code
			check(params, sample.inCode, Source{Origin: Code})

			t.Setenv(k.variable(), "")
			check(nil, sample.def, Source{})
		})
	}
}

func TestEnvironmentVariablesOfOthersAreLeftAlone(t *testing.T) {
	clearEnvironment(t)
	for _, name := range []string{"EPL_DUMP", "EPL_TRACE", "EPL_TRACE_STEPS", "EPL_RANK", "EPL_PIPELINE", "EPL_PIPELINES_X", "PIPELINE_NUM_STAGES", "epl_pipeline_x"} {
		t.Setenv(name, "anything")
	}
	t.Setenv("EPL_PIPELINE_UNKNOWN_BUT_EMPTY", "")
	if _, err := New(nil); err != nil {
		t.Error(err)
	}
}

func TestAVariableThatCodeOverridesIsNotRead(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("EPL_COMMUNICATION_MAX_SPLITS", "many")
	cfg, err := New(map[string]any{"communication.max_splits": 15})
	if err != nil || cfg.Communication.MaxSplits != 15 {
		t.Errorf("%v, %v", cfg, err)
	}
}

func TestNoneInCodeUnsetsTheStagesOfTheEnvironment(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("EPL_PIPELINE_NUM_STAGES", "4")
	cfg, err := New(map[string]any{"pipeline.num_stages": "None"})
	if err != nil || cfg.Pipeline.NumStages != 0 {
		t.Errorf("%v, %v", cfg, err)
	}
}

func TestOtherSettingsWinAndKeepTheSourcesOfTheRest(t *testing.T) {
	cfg, err := resolve(map[string]any{"pipeline.num_micro_batch": 4, "amp.level": "O1"}, []string{"EPL_ZERO_LEVEL=v1", "EPL_AMP_DTYPE=bfloat16"})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Optimizer.NumApplyGroup = 3
	got, err := cfg.With([]string{"amp.dtype=float16", "cluster.device_memory=1MiB"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `pipeline.num_micro_batch = 4 (from code)
zero.level = "v1" (from environment EPL_ZERO_LEVEL)
amp.level = "O1" (from code)
optimizer.num_apply_group = 3 (from code)
cluster.device_memory = 1MiB (from epl plan --set)`
	if got.String() != want {
		t.Errorf("got:\n%s", got)
	}
	if cfg.AMP.DType != BFloat16 {
		t.Error("the first configuration has changed")
	}
	_, err = cfg.With([]string{"zero.level=v9", "amp.levl=O1", "amp.loss_scale=dynamic"})
	for _, want := range []string{`zero.level = "v9" (set by epl plan --set) must be`, `did you mean "amp.level"`,
		`amp.loss_scale = dynamic (set by epl plan --set) has no effect`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said: %v", want, err)
		}
	}
}
