// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"

	"github.com/easyparallel/epl/config"
)

func ExampleNew() {
	cfg, err := config.New(map[string]any{
		"pipeline.num_micro_batch": 4,
		"pipeline.strategy":        "preferforward", // words in any case
		"cluster.device_memory":    "2GiB",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cfg.Pipeline.NumMicroBatch, cfg.Pipeline.Strategy, cfg.Cluster.DeviceMemory)
	fmt.Println(cfg)
	// Output:
	// 4 PreferForward 2147483648
	// pipeline.num_micro_batch = 4 (from code)
	// pipeline.strategy = "PreferForward" (from code)
	// cluster.device_memory = 2GiB (from code)
}

func ExampleNew_errors() {
	_, err := config.New(map[string]any{
		"pipeline.num_microbatch": 4,
		"zero.level":              "v3",
		"amp.loss_scale":          1024,
	})
	fmt.Println(err)
	// Output:
	// epl: amp.loss_scale = 1024 (set by code) has no effect while amp.level is ""; set amp.level to "O1", or leave amp.loss_scale unset
	// epl: unknown configuration key "pipeline.num_microbatch" (did you mean "pipeline.num_micro_batch"?)
	// epl: zero.level = "v3" (set by code) must be "", "v0", "v1" or "v2"
}
