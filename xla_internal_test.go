// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"os"
	"testing"
)

func TestCUDAGraphsAreOffUnlessTheUserSpeaksOfThem(t *testing.T) {
	for _, c := range []struct{ backend, before, after string }{
		{"xla:cuda", "", "--xla_gpu_enable_command_buffer="},
		{"xla:cuda", "--xla_dump_to=x", "--xla_dump_to=x --xla_gpu_enable_command_buffer="},
		{"xla:cuda", "--xla_gpu_enable_command_buffer=FUSION", "--xla_gpu_enable_command_buffer=FUSION"},
		{"xla", "", "--xla_gpu_enable_command_buffer="},
		{"xla:/plugins/pjrt_cuda.so", "", "--xla_gpu_enable_command_buffer="},
		{"xla:cpu", "", ""},
		{"go", "", ""},
	} {
		t.Setenv("XLA_FLAGS", c.before)
		if err := tuneXLA(c.backend); err != nil {
			t.Error(err)
		}
		if got := os.Getenv("XLA_FLAGS"); got != c.after {
			t.Errorf("%s with %q: %q, want %q", c.backend, c.before, got, c.after)
		}
	}
}
