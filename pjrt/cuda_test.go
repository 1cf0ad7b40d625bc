// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheLibrariesBesideAPluginAreFound(t *testing.T) {
	root := t.TempDir()
	for _, f := range []string{"site/jax_plugins/xla_cuda13/xla_cuda_plugin.so", "site/nvidia/cu13/lib/libcudart.so.13", "site/nvidia/cu13/nvvm/libdevice/libdevice.10.bc",
		"go-xla/nvidia/pjrt_c_api_cuda_plugin.so", "go-xla/pjrt_c_api_cpu_plugin.so", "links/x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(root, "links/pjrt_c_api_cuda_plugin.so")
	if err := os.Symlink(filepath.Join(root, "site/jax_plugins/xla_cuda13/xla_cuda_plugin.so"), link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"site/jax_plugins/xla_cuda13/xla_cuda_plugin.so": "site/nvidia",
		"links/pjrt_c_api_cuda_plugin.so":                "site/nvidia",
		"go-xla/nvidia/pjrt_c_api_cuda_plugin.so":        "go-xla/nvidia",
		"go-xla/pjrt_c_api_cpu_plugin.so":                "",
		"nowhere/pjrt_c_api_cuda_plugin.so":              "",
	} {
		if want != "" {
			want = filepath.Join(root, want)
		}
		if got := nvidiaFolder(filepath.Join(root, path)); got != want {
			t.Errorf("%s: %q, not %q", path, got, want)
		}
	}
	t.Setenv("XLA_FLAGS", "--xla_dump_to=/tmp")
	prepareCUDA(link) // the library is none, and is left out
	if got, want := os.Getenv("XLA_FLAGS"), "--xla_dump_to=/tmp --xla_gpu_cuda_data_dir="+filepath.Join(root, "site/nvidia/cu13"); got != want {
		t.Error(got)
	}
	t.Setenv("XLA_FLAGS", "--xla_gpu_cuda_data_dir=/cuda")
	prepareCUDA(link)
	if got := os.Getenv("XLA_FLAGS"); got != "--xla_gpu_cuda_data_dir=/cuda" {
		t.Error(got)
	}
}

// Whatever a configuration says, the loader's folders are absolute.
