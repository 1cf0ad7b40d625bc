// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla_test

import (
	"strings"
	"testing"

	"github.com/easyparallel/epl"
)

func TestAMissingPluginIsNamed(t *testing.T) {
	t.Setenv("PJRT_PLUGIN_LIBRARY_PATH", t.TempDir())
	t.Setenv("EPL_XLA_CACHE", "off")
	_, err := epl.Init(nil, epl.WithInner("xla:cuda"))
	if err == nil || !strings.Contains(err.Error(), `WithInner("xla:cuda")`) || !strings.Contains(err.Error(), "PJRT_PLUGIN_LIBRARY_PATH") {
		t.Errorf("the error is %v", err)
	}
	_, err = epl.Init(nil, epl.WithInner("xla:cuda,threads=2"))
	if err == nil || !strings.Contains(err.Error(), `no option "threads=2"`) {
		t.Errorf("the error is %v", err)
	}
}
