// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"testing"

	"github.com/easyparallel/epl/exec/xla"
)

func TestGPUsOfSeveralWorkersNeedCUDAAndOneDeviceEach(t *testing.T) {
	for options, want := range map[string]string{
		"":                             "",
		"cuda13":                       "",
		"/opt/xla_cuda12_plugin.so":    "",
		"cuda,share=1":                 "",
		"cuda,share=2":                 "share=2 makes several devices of a GPU, and NCCL takes one only once",
		"cpu":                          `the plugin "cpu" is not for CUDA`,
		"/opt/cuda/pjrt_plugin_tpu.so": `the plugin "/opt/cuda/pjrt_plugin_tpu.so" is not for CUDA`,
	} {
		name, o, err := xla.Parse(options)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := (&gpus{name: name, options: o}).Joint(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", options, got, want)
		}
	}
}
