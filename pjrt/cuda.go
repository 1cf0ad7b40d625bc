// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/ebitengine/purego"
)

// nvidiaLibraries are what the CUDA plugin needs, in the order of their dependencies.
var nvidiaLibraries = []string{"cudart", "nvrtc", "nvJitLink", "cublasLt", "cublas", "nccl", "cupti", "cusparse", "cusolver", "cufft", "nvshmem_host", "cudnn"}

// prepareCUDA makes the plugin at a path find NVIDIA's libraries, if they were installed beside it, as pip and go-xla's
// installer do. The plugin looks them up by name, and finds those that are loaded already. XLA reads the folder with ptxas
// and libdevice from XLA_FLAGS, unless that names one. Whatever is missing is left to the plugin, which then looks in the
// system's folders and reports what it does not find.
func prepareCUDA(path string) {
	folder := nvidiaFolder(path)
	if folder == "" {
		return
	}
	for _, name := range nvidiaLibraries {
		found, _ := filepath.Glob(filepath.Join(folder, "*", "lib", "lib"+name+".so*"))
		for _, library := range found {
			_, _ = purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
		}
	}
	const flag = "--xla_gpu_cuda_data_dir"
	tools, _ := filepath.Glob(filepath.Join(folder, "*", "nvvm", "libdevice"))
	if flags := os.Getenv("XLA_FLAGS"); len(tools) > 0 && !strings.Contains(flags, flag) {
		_ = os.Setenv("XLA_FLAGS", strings.TrimSpace(flags+" "+flag+"="+filepath.Dir(filepath.Dir(tools[0])))) // XLA would warn
	}
}

// nvidiaFolder returns the folder of NVIDIA's Python packages beside the plugin at a path, or an empty string. The plugin is
// at site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so or at lib/go-xla/nvidia/pjrt_c_api_cuda_plugin.so.
func nvidiaFolder(path string) string {
	if !strings.Contains(filepath.Base(path), "cuda") {
		return ""
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	for _, plugin := range []string{path, real} {
		for _, up := range []string{"../..", "../../.."} {
			folder := filepath.Join(plugin, up, "nvidia")
			if info, err := os.Stat(folder); err == nil && info.IsDir() {
				return folder
			}
		}
	}
	return ""
}
