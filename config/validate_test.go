// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"strings"
	"testing"
	"time"
)

// defaults returns a Config that no environment touched.
func defaults(t *testing.T) *Config {
	t.Helper()
	cfg, err := resolve(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestAConfigThatNewDidNotBuildIsRefused(t *testing.T) {
	const want = "epl: this Config was not built by NewConfig, so its empty fields are not defaults; " +
		"build it with NewConfig, then change its fields"
	for _, cfg := range []*Config{nil, {}, {Pipeline: Pipeline{NumMicroBatch: 1}}} {
		if err := cfg.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v", err)
		}
	}
}

func TestChangedFieldsAreCheckedAndCountAsCode(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"nothing", func(c *Config) {}, nil},
		{"allowed values", func(c *Config) {
			c.Pipeline.NumMicroBatch, c.AMP.Level, c.AMP.LossScale = 8, AMPO1, LossScale{Value: 2}
			c.Cluster.RunVisibleDevices, c.Communication.Timeout = "1,0", time.Second
		}, nil},
		{"values out of bounds", func(c *Config) {
			c.Pipeline.NumMicroBatch, c.Pipeline.NumStages = 0, -1
			c.Cluster.DeviceMemory, c.Communication.Timeout = -5, -time.Second
		}, []string{
			"epl: cluster.device_memory = -5 (set by code) must be a number of bytes such as 512MB, 2GiB, 1.5g or 0",
			"epl: communication.timeout = -1s (set by code) must be a positive duration such as 90s or 5m, or a number of seconds",
			"epl: pipeline.num_micro_batch = 0 (set by code) must be an integer of at least 1",
			"epl: pipeline.num_stages = -1 (set by code) must be an integer of at least 1, or none",
		}},
		{"words in another case", func(c *Config) { c.AMP.Level = "o1" }, []string{
			`epl: amp.level = "o1" (set by code) must be written "O1" in its field`,
		}},
		{"a whole category", func(c *Config) { c.AMP = AMP{Level: AMPO1} }, []string{
			`epl: amp.dtype = "" (set by code) must be "float16" or "bfloat16"`,
			`epl: amp.loss_scale = LossScale{Dynamic: false, Value: 0} (set by code) must be "dynamic" or a number from 2^-126 to 2^126`,
		}},
		{"a scale that is not a number", func(c *Config) { c.AMP.LossScale.Value = math.NaN() }, []string{
			`epl: amp.loss_scale = LossScale{Dynamic: true, Value: NaN} (set by code) must be "dynamic" or a number from 2^-126 to 2^126`,
		}},
		{"keys that need each other", func(c *Config) { c.IO.DropLastFiles, c.Pipeline.StagesPerDevice = true, 2 }, []string{
			"epl: io.drop_last_files = true (set by code) has no effect while io.slicing is false; set io.slicing to true, or leave io.drop_last_files unset",
			`epl: pipeline.stages_per_device = 2 (set by code) needs pipeline.strategy "Interleaved", but it is "PreferBackward"; set it to "Interleaved", or leave pipeline.stages_per_device at 1`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := defaults(t)
			test.change(cfg)
			var got string
			if err := cfg.Validate(); err != nil {
				got = err.Error()
			}
			if want := strings.Join(test.want, "\n"); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestVisibleDevicesAreTheListedNumbers(t *testing.T) {
	cfg := defaults(t)
	if devices, err := cfg.Cluster.VisibleDevices(); devices != nil || err != nil {
		t.Errorf("default: %v, %v", devices, err)
	}
	cfg.Cluster.RunVisibleDevices = "3,1"
	if devices, err := cfg.Cluster.VisibleDevices(); err != nil || len(devices) != 2 || devices[0] != 3 || devices[1] != 1 {
		t.Errorf("%v, %v", devices, err)
	}
	cfg.Cluster.RunVisibleDevices = "3;1"
	const want = `epl: cluster.run_visible_devices = "3;1" (set by code) must be a list of different device indices such as "0,2", or "" for all`
	if _, err := cfg.Cluster.VisibleDevices(); err == nil || err.Error() != want {
		t.Error(err)
	}
}
