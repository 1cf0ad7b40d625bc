// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestConfigListsEveryKeyInColumns(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("EPL_PIPELINE_NUM_MICRO_BATCH", "4")
	status, stdout, stderr := epl(t, "config", "--set", "zero.level=V1", "--set", "cluster.run_visible_devices=0,2")
	const head = `
KEY                                     TYPE                 DEFAULT         VALUE           SOURCE
pipeline.num_micro_batch                int                  1               4               environment EPL_PIPELINE_NUM_MICRO_BATCH
pipeline.num_stages                     int                  none            none            default
pipeline.strategy                       string               PreferBackward  PreferBackward  default
pipeline.stages_per_device              int                  1               1               default
gradient_checkpoint.type                string               ""              ""              default
gradient_checkpoint.end_taskgraph       int                  -1              -1              default
gradient_checkpoint.check_gradients     bool                 false           false           default
zero.level                              string               ""              v1              code
`
	if status != 0 || stderr != "" || !strings.HasPrefix("\n"+stdout, head) {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
}

func TestConfigChangedListsOnlyWhatIsNotDefault(t *testing.T) {
	clearEnvironment(t)
	status, stdout, stderr := epl(t, "config", "--changed",
		"--set", "cluster.run_visible_devices=0,2", "--set", "communication.max_splits=5")
	const want = `
KEY                          TYPE    DEFAULT  VALUE  SOURCE
cluster.run_visible_devices  string  ""       0,2    code
`
	if status != 0 || stderr != "" || "\n"+stdout != want {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
}

func TestConfigExplainsOneKey(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("EPL_COMMUNICATION_BACKEND", "MPI")
	status, stdout, stderr := epl(t, "config", "communication.backend")
	const want = `communication.backend

What carries collectives. auto: NCCL between GPUs, else in-process, shared memory or TCP, whatever reaches the peer.

type             string
allowed          "auto", "mpi" or "nccl"
default          auto
value            mpi (from environment EPL_COMMUNICATION_BACKEND)
variable         EPL_COMMUNICATION_BACKEND
in original EPL  no
`
	if status != 0 || stderr != "" || stdout != want {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
}

func TestConfigPrintsJSONForOtherPrograms(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("EPL_AMP_LEVEL", "o1")
	for _, test := range []struct {
		args []string
		want int // entries
	}{
		{[]string{"config", "--json"}, 42},
		{[]string{"config", "--json", "--changed"}, 1},
		{[]string{"config", "--json", "amp.level"}, 1},
		{[]string{"config", "--json", "--changed", "--set", "amp.level="}, 0},
	} {
		status, stdout, stderr := epl(t, test.args...)
		var entries []struct {
			Key, Type, Default, Value, Allowed, Doc, Variable string
			Original                                          bool
			PerWorker                                         bool `json:"per_worker"`
			Source                                            struct{ Origin, Variable string }
		}
		decoder := json.NewDecoder(strings.NewReader(stdout))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&entries); err != nil || status != 0 || stderr != "" || entries == nil {
			t.Fatalf("%v: %v, status %d, stderr %q, stdout:\n%s", test.args, err, status, stderr, stdout)
		}
		if len(entries) != test.want {
			t.Errorf("%v: %d entries, want %d", test.args, len(entries), test.want)
		}
		for _, e := range entries {
			if e.Key == "amp.level" && (e.Value != "O1" || e.Source.Origin != "environment" || e.Source.Variable != "EPL_AMP_LEVEL" || !e.Original) {
				t.Errorf("%v: %+v", test.args, e)
			}
		}
	}
}

func TestConfigMistakesAreMessages(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		env  [2]string
		want string
	}{
		{"a wrong flag", []string{"--jason"}, [2]string{}, "epl: unknown flag: --jason (did you mean --json?)\n"},
		{"too many keys", []string{"a", "b"}, [2]string{}, "epl: accepts at most 1 arg(s), received 2\n"},
		{"a wrong key to explain", []string{"zero.levl"}, [2]string{},
			"epl: unknown configuration key \"zero.levl\" (did you mean \"zero.level\"?)\n"},
		{"a wrong key to set", []string{"--set", "zero.levl=v1"}, [2]string{},
			"epl: unknown configuration key \"zero.levl\" (did you mean \"zero.level\"?)\n"},
		{"a wrong value", []string{"--set", "io.slicing=yes"}, [2]string{},
			"epl: io.slicing = \"yes\" (set by code) must be true or false\n"},
		{"a key without a value", []string{"--set", "io.slicing"}, [2]string{},
			"epl: --set \"io.slicing\" has no value; write --set key=value\n"},
		{"a key set twice", []string{"--set", "io.slicing=true", "--set", "io.slicing=false"}, [2]string{},
			"epl: --set gives io.slicing twice; keep one of them\n"},
		{"the changes of one key", []string{"--changed", "io.slicing"}, [2]string{},
			"epl: --changed is for the whole list; leave it out, or leave out io.slicing\n"},
		{"a wrong variable", nil, [2]string{"EPL_IO_SLICE", "true"},
			"epl: unknown configuration variable EPL_IO_SLICE in the environment (did you mean EPL_IO_SLICING?)\n"},
		{"a wrong value of a variable", nil, [2]string{"EPL_IO_SLICING", "1"},
			"epl: io.slicing = \"1\" (set by environment EPL_IO_SLICING) must be true or false\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			clearEnvironment(t)
			if test.env[0] != "" {
				t.Setenv(test.env[0], test.env[1])
			}
			status, stdout, stderr := epl(t, append([]string{"config"}, test.args...)...)
			code := 2 // of the command line
			if test.env[0] != "" {
				code = 1
			}
			if status != code || stdout != "" || stderr != test.want {
				t.Errorf("status %d, stdout %q, stderr:\n%s", status, stdout, stderr)
			}
		})
	}
}
