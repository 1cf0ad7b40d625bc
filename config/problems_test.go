// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestErrorsSayWhatIsWrongAndTheWayOut(t *testing.T) {
	for _, test := range []struct {
		name   string
		params map[string]any
		env    []string
		want   []string
	}{
		{
			name:   "an unknown key names the nearest",
			params: map[string]any{"pipeline.num_microbatch": 4},
			want:   []string{`epl: unknown configuration key "pipeline.num_microbatch" (did you mean "pipeline.num_micro_batch"?)`},
		},
		{
			name:   "an unknown key that is like none says where they are listed",
			params: map[string]any{"colour": "blue"},
			want:   []string{`epl: unknown configuration key "colour" (the nearest is "recovery.copies"; "epl config" lists all)`},
		},
		{
			name: "an unknown variable of a known category names the nearest",
			env:  []string{"EPL_PIPELINE_NUM_MICROBATCH=4"},
			want: []string{"epl: unknown configuration variable EPL_PIPELINE_NUM_MICROBATCH in the environment (did you mean EPL_PIPELINE_NUM_MICRO_BATCH?)"},
		},
		{
			name: "an unknown variable of a known category that is like none says where they are listed",
			env:  []string{"EPL_IO_QQQQQQQQ=1"},
			want: []string{`epl: unknown configuration variable EPL_IO_QQQQQQQQ in the environment (the nearest is EPL_IO_SLICING; "epl config" lists all keys)`},
		},
		{
			name:   "a word out of its set",
			params: map[string]any{"communication.gradients_reduce_method": "not_mean"},
			want:   []string{`epl: communication.gradients_reduce_method = "not_mean" (set by code) must be "mean" or "sum"`},
		},
		{
			name: "a value of the environment names its variable",
			env:  []string{"EPL_COMMUNICATION_FP16=1"},
			want: []string{`epl: communication.fp16 = "1" (set by environment EPL_COMMUNICATION_FP16) must be true or false`},
		},
		{
			name:   "a count below its bound",
			params: map[string]any{"communication.max_splits": 0},
			want:   []string{"epl: communication.max_splits = 0 (set by code) must be an integer of at least 1"},
		},
		{
			name:   "stages that are given are at least one",
			params: map[string]any{"pipeline.num_stages": 0, "auto.auto_parallel": true},
			want:   []string{"epl: pipeline.num_stages = 0 (set by code) must be an integer of at least 1, or none"},
		},
		{
			name:   "the index of a TaskGraph below -1",
			params: map[string]any{"gradient_checkpoint.end_taskgraph": -2},
			want:   []string{"epl: gradient_checkpoint.end_taskgraph = -2 (set by code) must be an integer of at least -1"},
		},
		{
			name: "values of the wrong type",
			params: map[string]any{
				"pipeline.num_micro_batch":  1.5,
				"optimizer.num_apply_group": []int{1, 2},
				"communication.max_splits":  nil,
				"communication.fp16_scale":  time.Second,
				"zero.level":                uint8(1),
				"io.slicing":                1,
			},
			want: []string{
				"epl: communication.fp16_scale = 1s (set by code) must be an integer of at least 1",
				"epl: communication.max_splits = nil (set by code) must be an integer of at least 1",
				"epl: io.slicing = 1 (set by code) must be true or false",
				"epl: optimizer.num_apply_group = [1 2] of type []int (set by code) must be an integer of at least 1",
				"epl: pipeline.num_micro_batch = 1.5 (set by code) must be an integer of at least 1",
				`epl: zero.level = 1 of type uint8 (set by code) must be "", "v0", "v1" or "v2"`,
			},
		},
		{
			name: "the types with a grammar of their own",
			params: map[string]any{
				"amp.loss_scale":              -1,
				"cluster.run_visible_devices": "0,0",
				"cluster.device_memory":       "2 apples",
				"communication.timeout":       "0s",
			},
			want: []string{
				`epl: amp.loss_scale = -1 (set by code) must be "dynamic" or a number from 2^-126 to 2^126`,
				`epl: cluster.device_memory = "2 apples" (set by code) must be a number of bytes such as 512MB, 2GiB, 1.5g or 0`,
				`epl: cluster.run_visible_devices = "0,0" (set by code) must be a list of different device indices such as "0,2", or "" for all`,
				`epl: communication.timeout = "0s" (set by code) must be a positive duration such as 90s or 5m, or a number of seconds`,
			},
		},
		{
			name:   "stages without auto-parallelism",
			params: map[string]any{"pipeline.num_stages": 2},
			want:   []string{"epl: pipeline.num_stages = 2 (set by code) has no effect while auto.auto_parallel is false; set auto.auto_parallel to true, or leave pipeline.num_stages unset"},
		},
		{
			name: "details of recomputation without recomputation",
			env:  []string{"EPL_GRADIENT_CHECKPOINT_END_TASKGRAPH=0", "EPL_GRADIENT_CHECKPOINT_CHECK_GRADIENTS=true"},
			want: []string{
				`epl: gradient_checkpoint.check_gradients = true (set by environment EPL_GRADIENT_CHECKPOINT_CHECK_GRADIENTS) has no effect while gradient_checkpoint.type is ""; set gradient_checkpoint.type to "collection" or "auto", or leave gradient_checkpoint.check_gradients unset`,
				`epl: gradient_checkpoint.end_taskgraph = 0 (set by environment EPL_GRADIENT_CHECKPOINT_END_TASKGRAPH) has no effect while gradient_checkpoint.type is ""; set gradient_checkpoint.type to "collection" or "auto", or leave gradient_checkpoint.end_taskgraph unset`,
			},
		},
		{
			name:   "details of mixed precision without it, even a default that is a choice",
			params: map[string]any{"amp.debug_log": true, "amp.loss_scale": "dynamic", "amp.dtype": "float16"},
			want: []string{
				`epl: amp.debug_log = true (set by code) has no effect while amp.level is ""; set amp.level to "O1", or leave amp.debug_log unset`,
				`epl: amp.dtype = "float16" (set by code) has no effect while amp.level is ""; set amp.level to "O1", or leave amp.dtype unset`,
				`epl: amp.loss_scale = dynamic (set by code) has no effect while amp.level is ""; set amp.level to "O1", or leave amp.loss_scale unset`,
			},
		},
		{
			name:   "the scale of float16 communication without it",
			params: map[string]any{"communication.fp16_scale": 128},
			want:   []string{"epl: communication.fp16_scale = 128 (set by code) has no effect while communication.fp16 is false; set communication.fp16 to true, or leave communication.fp16_scale unset"},
		},
		{
			name:   "details of slicing without it",
			params: map[string]any{"io.unbalanced_io_slicing": true, "io.drop_last_files": true},
			want: []string{
				"epl: io.drop_last_files = true (set by code) has no effect while io.slicing is false; set io.slicing to true, or leave io.drop_last_files unset",
				"epl: io.unbalanced_io_slicing = true (set by code) has no effect while io.slicing is false; set io.slicing to true, or leave io.unbalanced_io_slicing unset",
			},
		},
		{
			name:   "several stages per device under another strategy",
			params: map[string]any{"pipeline.stages_per_device": 2},
			want:   []string{`epl: pipeline.stages_per_device = 2 (set by code) needs pipeline.strategy "Interleaved", but it is "PreferBackward"; set it to "Interleaved", or leave pipeline.stages_per_device at 1`},
		},
		{
			name:   "interleaved stages without several per device",
			params: map[string]any{"pipeline.strategy": "interleaved"},
			want:   []string{`epl: pipeline.strategy = "Interleaved" (set by code) needs pipeline.stages_per_device of at least 2, but it is 1; set it to 2 or more, or use the strategy "PreferBackward"`},
		},
		{
			name:   "a dynamic loss scale for bfloat16",
			params: map[string]any{"amp.level": "O1", "amp.dtype": "bfloat16", "amp.loss_scale": "dynamic"},
			want:   []string{`epl: amp.loss_scale = dynamic (set by code) has no effect while amp.dtype is "bfloat16"; leave it unset, or give a number`},
		},
		{
			name:   "a loss scale that float32 does not have",
			params: map[string]any{"amp.level": "O1", "amp.loss_scale": 1e39},
			want:   []string{`epl: amp.loss_scale = 1e+39 (set by code) must be "dynamic" or a number from 2^-126 to 2^126`},
		},
		{
			name:   "a loss scale whose inverse float32 does not have",
			params: map[string]any{"amp.level": "O1"},
			env:    []string{"EPL_AMP_LOSS_SCALE=1e-44"},
			want:   []string{`epl: amp.loss_scale = "1e-44" (set by environment EPL_AMP_LOSS_SCALE) must be "dynamic" or a number from 2^-126 to 2^126`},
		},
		{
			name: "a refused value causes no further complaint",
			params: map[string]any{
				"pipeline.strategy": "Interleaved", "pipeline.stages_per_device": "two",
				"amp.level": "O2", "amp.loss_scale": 8,
			},
			want: []string{
				`epl: amp.level = "O2" (set by code) must be "" or "O1"`,
				`epl: pipeline.stages_per_device = "two" (set by code) must be an integer of at least 1`,
			},
		},
		{
			name:   "all problems come at once, sorted",
			params: map[string]any{"zero.levl": "v1", "io.slicing": "yes", "pipeline.num_stages": 2},
			env:    []string{"EPL_AMP_LEVEL=O9", "EPL_AMP_LEVLE=O1"},
			want: []string{
				`epl: amp.level = "O9" (set by environment EPL_AMP_LEVEL) must be "" or "O1"`,
				`epl: io.slicing = "yes" (set by code) must be true or false`,
				"epl: pipeline.num_stages = 2 (set by code) has no effect while auto.auto_parallel is false; set auto.auto_parallel to true, or leave pipeline.num_stages unset",
				`epl: unknown configuration key "zero.levl" (did you mean "zero.level"?)`,
				"epl: unknown configuration variable EPL_AMP_LEVLE in the environment (did you mean EPL_AMP_LEVEL?)",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg, err := resolve(test.params, test.env)
			if err == nil {
				t.Fatalf("accepted as %v", cfg)
			}
			if got, want := err.Error(), strings.Join(test.want, "\n"); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestADefaultThatAsksForNothingNeedsNothing(t *testing.T) {
	if _, err := resolve(map[string]any{
		"pipeline.num_stages":               "none",
		"pipeline.stages_per_device":        1,
		"gradient_checkpoint.end_taskgraph": -1,
		"amp.debug_log":                     false,
		"io.drop_last_files":                false,
	}, nil); err != nil {
		t.Error(err)
	}
}

func TestErrorsRepeatOnlyTheBeginningOfALongValue(t *testing.T) {
	long := strings.Repeat("ü", 1000)
	for _, given := range []any{long, []string{long}, math.MaxFloat64} {
		if s := showGiven(given); len(s) > 300 {
			t.Errorf("%d bytes: %s", len(s), s)
		}
	}
	if _, err := lookup(long); len(err.Error()) > 400 {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
}

func TestTheNearestKeyIsTheOneThatWasMeant(t *testing.T) {
	for given, want := range map[string]string{
		"pipeline.NumMicroBatch":        "pipeline.num_micro_batch",
		"num_micro_batch":               "pipeline.num_micro_batch",
		"communication.num_micro_batch": "pipeline.num_micro_batch",
		"Communication.MaxSplit":        "communication.max_splits",
		"gradient-checkpoint.type":      "gradient_checkpoint.type",
		"amp.lvl":                       "amp.level",
		"fp16":                          "communication.fp16",
		"visible_devices":               "cluster.run_visible_devices",
	} {
		k, likely := nearest(given)
		if k.name != want || !likely {
			t.Errorf("%s: %s (likely: %t), want %s", given, k.name, likely, want)
		}
	}
	if k, likely := nearest("foo.bar"); likely {
		t.Errorf("%s is not what was meant by foo.bar", k.name)
	}
}
