// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestChangingAFieldChangesItsSourceInThatCopyOnly(t *testing.T) {
	cfg, err := resolve(nil, []string{"EPL_ZERO_LEVEL=v1"})
	if err != nil {
		t.Fatal(err)
	}
	other := *cfg
	other.Zero.Level = ZeroV2
	for c, want := range map[*Config]string{cfg: "environment EPL_ZERO_LEVEL", &other: "code"} {
		if source, err := c.Source("zero.level"); err != nil || source.String() != want {
			t.Errorf("%v, %v, want %s", source, err, want)
		}
	}
	if source, err := (&Config{}).Source("io.slicing"); err != nil || source.String() != "default" {
		t.Errorf("a zero field that equals its default: %v, %v", source, err)
	}
}

func TestAskingForAnUnknownKeyNamesTheNearest(t *testing.T) {
	const want = `epl: unknown configuration key "zero.levle" (did you mean "zero.level"?)`
	cfg := defaults(t)
	_, getErr := cfg.Get("zero.levle")
	_, sourceErr := cfg.Source("zero.levle")
	_, entryErr := cfg.Entry("zero.levle")
	for _, err := range []error{getErr, sourceErr, entryErr} {
		if err == nil || err.Error() != want {
			t.Error(err)
		}
	}
}

func TestAnEntryTellsAllAboutAKey(t *testing.T) {
	cfg, err := resolve(nil, []string{"EPL_CLUSTER_RUN_VISIBLE_DEVICES= 0,2"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := cfg.Entry("cluster.run_visible_devices")
	if err != nil {
		t.Fatal(err)
	}
	want := Entry{
		Key: "cluster.run_visible_devices", Type: "string", Default: "", Value: "0,2",
		Source:   Source{Environment, "EPL_CLUSTER_RUN_VISIBLE_DEVICES"},
		Allowed:  `a list of different device indices such as "0,2", or "" for all`,
		Doc:      "Indices of the devices that this worker may use. Empty: all of them.",
		Variable: "EPL_CLUSTER_RUN_VISIBLE_DEVICES", Original: true, PerWorker: true,
	}
	if got != want || !got.Changed() {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if entries := cfg.Entries(); len(entries) != len(keys) || entries[0].Key != keys[0].name || entries[0].Changed() {
		t.Errorf("%d entries, first %+v", len(entries), entries[0])
	}
}

func TestStringListsWhatIsNotDefault(t *testing.T) {
	cfg := defaults(t)
	if got := cfg.String(); got != "every key has its default" {
		t.Error(got)
	}
	cfg, err := resolve(map[string]any{"amp.level": "O1", "communication.max_splits": 5},
		[]string{"EPL_AMP_LOSS_SCALE=1024", "EPL_CLUSTER_DEVICE_MEMORY=1.5g"})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Pipeline.NumMicroBatch = 3
	const want = `pipeline.num_micro_batch = 3 (from code)
amp.level = "O1" (from code)
amp.loss_scale = 1024 (from environment EPL_AMP_LOSS_SCALE)
cluster.device_memory = 1500MB (from environment EPL_CLUSTER_DEVICE_MEMORY)`
	if got := cfg.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestCanonicalTextIsTheSameHoweverValuesWereGiven(t *testing.T) {
	byCode, err := resolve(map[string]any{"zero.level": "V1", "communication.timeout": 60}, nil)
	if err != nil {
		t.Fatal(err)
	}
	byEnvironment, err := resolve(nil, []string{"EPL_ZERO_LEVEL=v1", "EPL_COMMUNICATION_TIMEOUT=1m"})
	if err != nil {
		t.Fatal(err)
	}
	text := byCode.Canonical()
	if text != byEnvironment.Canonical() || byCode.Hash() != byEnvironment.Hash() {
		t.Errorf("%s\ndiffers from\n%s", text, byEnvironment.Canonical())
	}
	for _, line := range []string{"pipeline.num_stages=none\n", "zero.level=v1\n", "communication.timeout=1m\n", "offload.level=\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %q in:\n%s", line, text)
		}
	}
}

func TestTheHashLeavesOutWhatMayDifferBetweenWorkers(t *testing.T) {
	one, other := defaults(t), defaults(t)
	other.Cluster.RunVisibleDevices = "1"
	if one.Hash() != other.Hash() || one.Canonical() == other.Canonical() {
		t.Error("visible devices changed the hash, or did not change the text")
	}
	other.Pipeline.NumMicroBatch = 2
	if one.Hash() == other.Hash() {
		t.Error("the number of micro-batches did not change the hash")
	}
}
