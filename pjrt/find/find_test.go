// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package find

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machine makes a file system with some files, and the system that has it.
func machine(t *testing.T, env map[string]string, files ...string) System {
	t.Helper()
	root := t.TempDir()
	for _, f := range files {
		name, text, _ := strings.Cut(f, ": ")
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return System{Root: root, Home: filepath.Join(root, "home/me"), Env: func(name string) string {
		return strings.ReplaceAll(env[name], "ROOT", root)
	}}
}

func TestFindLooksWhereInstallersPutPlugins(t *testing.T) {
	const jax = "lib/python3.12/site-packages/jax_plugins/"
	for _, test := range []struct {
		name  string
		find  string
		env   map[string]string
		files []string
		want  string
	}{
		{"go-xla, of the user", "cuda", nil, []string{"home/me/.local/lib/go-xla/nvidia/pjrt_c_api_cuda_plugin.so", "usr/local/lib/go-xla/nvidia/pjrt_c_api_cuda_plugin.so"},
			"home/me/.local/lib/go-xla/nvidia/pjrt_c_api_cuda_plugin.so"},
		{"go-xla, of the system", "cpu", nil, []string{"usr/local/lib/go-xla/pjrt_c_api_cuda_plugin.so", "usr/local/lib/go-xla/pjrt_c_api_cpu_plugin.so"},
			"usr/local/lib/go-xla/pjrt_c_api_cpu_plugin.so"},
		{"other names", "cpu", nil, []string{"home/me/.local/lib/gomlx/pjrt/pjrt-plugin-cpu.so"}, "home/me/.local/lib/gomlx/pjrt/pjrt-plugin-cpu.so"},
		{"LD_LIBRARY_PATH", "cuda", map[string]string{"LD_LIBRARY_PATH": "relative::ROOT/opt/libs"}, []string{"opt/libs/pjrt_plugin_cuda13.so"}, "opt/libs/pjrt_plugin_cuda13.so"},
		{"a version", "cuda12", nil, []string{"usr/local/lib/go-xla/pjrt_c_api_cuda13_plugin.so", "usr/local/" + jax + "xla_cuda12/xla_cuda_plugin.so"}, "usr/local/" + jax + "xla_cuda12/xla_cuda_plugin.so"},
		{"a virtual environment", "cuda", map[string]string{"VIRTUAL_ENV": "ROOT/venv"}, []string{"venv/" + jax + "xla_cuda12/xla_cuda_plugin.so", "venv/" + jax + "xla_cuda13/xla_cuda_plugin.so", "usr/" + jax + "xla_cuda13/xla_cuda_plugin.so"},
			"venv/" + jax + "xla_cuda13/xla_cuda_plugin.so"},
		{"PYTHONPATH", "cuda", map[string]string{"PYTHONPATH": "ROOT/mine"}, []string{"mine/jax_plugins/xla_cuda12/xla_cuda_plugin.so"}, "mine/jax_plugins/xla_cuda12/xla_cuda_plugin.so"},
		{"pip install --user", "cuda", nil, []string{"home/me/.local/" + jax + "xla_cuda12/xla_cuda_plugin.so"}, "home/me/.local/" + jax + "xla_cuda12/xla_cuda_plugin.so"},
		{"Debian", "rocm", nil, []string{"usr/lib/python3/dist-packages/jax_plugins/xla_rocm7/xla_rocm_plugin.so"}, "usr/lib/python3/dist-packages/jax_plugins/xla_rocm7/xla_rocm_plugin.so"},
		{"the variable, a folder", "cuda", map[string]string{LibraryPath: "ROOT/none:ROOT/here"}, []string{"here/xla_cuda_plugin.so", "usr/local/lib/go-xla/pjrt_c_api_cuda_plugin.so"}, "here/xla_cuda_plugin.so"},
		{"the variable, a file", "cuda", map[string]string{LibraryPath: "ROOT/here/libplugin.so"}, []string{"here/libplugin.so"}, "here/libplugin.so"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := machine(t, test.env, test.files...)
			got, err := s.Plugin(test.find)
			if err != nil || got != filepath.Join(s.Root, test.want) {
				t.Error(got, err)
			}
		})
	}
	if got, err := (System{}).Plugin("./plugin.so"); err != nil || got != "./plugin.so" {
		t.Error(got, err)
	}
}

func TestFindReadsTheLoadersConfiguration(t *testing.T) {
	s := machine(t, nil, "etc/ld.so.conf: include ld.so.conf.d/*.conf\n# /commented\n/opt/a # why\n\nhwcap 1 x\n", "etc/ld.so.conf.d/b.conf: /opt/b\ninclude /etc/ld.so.conf\n")
	if got := unique(s.loaderFolders("etc/ld.so.conf", map[string]bool{})); !slices.Equal(got, []string{"/opt/b", "/opt/a"}) {
		t.Error(got)
	}
}

func TestThePythonOnThePathIsLookedAt(t *testing.T) {
	s := machine(t, nil, "opt/python/bin/python3.13", "opt/python/lib/python3.13/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so", "venv/bin/x")
	s.Python = filepath.Join(s.Root, "venv/bin/python3")
	if err := os.Symlink(filepath.Join(s.Root, "opt/python/bin/python3.13"), s.Python); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Plugin("cuda"); err != nil || !strings.HasPrefix(got, filepath.Join(s.Root, "opt/python")) {
		t.Error(got, err)
	}
}

func TestAMissingPluginSaysWhatToDo(t *testing.T) {
	s := machine(t, nil, "etc/ld.so.conf: /opt/libs\n", "home/me/.local/lib/python3.12/site-packages/numpy/x")
	_, err := s.Plugin("cuda")
	var missing *NotFoundError
	if !errors.As(err, &missing) {
		t.Fatal(err)
	}
	want := `pjrt: there is no plugin "cuda" for XLA.
Looked for pjrt_c_api_cuda_plugin.so in
    ROOT/home/me/.local/lib/go-xla (not there)
    ROOT/home/me/.local/lib/go-xla/nvidia (not there)
    ROOT/home/me/.local/lib/gomlx/pjrt (not there)
    ROOT/usr/local/lib/go-xla (not there)
    ROOT/usr/local/lib/go-xla/nvidia (not there)
    ROOT/usr/local/lib/gomlx/pjrt (not there)
    /opt/libs (not there)
Looked for jax_plugins/xla_cuda*, a package of JAX, in
    ROOT/home/me/.local/lib/python3.12/site-packages
Install it:
    pip install "jax[cuda13]"    (or jax[cuda12] for older drivers; it brings NVIDIA's libraries)
    go run github.com/gomlx/go-xla/cmd/pjrt_installer@latest
or say where it is: PJRT_PLUGIN_LIBRARY_PATH=/folder/of/the/plugin, or the file itself.
This machine seems to have no NVIDIA GPU: there is no /dev/nvidia*.`
	if got := strings.ReplaceAll(err.Error(), s.Root, "ROOT"); got != want {
		t.Errorf("%s", got)
	}

	s = machine(t, map[string]string{LibraryPath: "ROOT/none"}, "dev/nvidia0")
	_, err = s.Plugin("cuda")
	if text := strings.ReplaceAll(err.Error(), s.Root, "ROOT"); !strings.Contains(text, "in, as PJRT_PLUGIN_LIBRARY_PATH says,\n    ROOT/none (not there)\nInstall") || strings.Contains(text, "no NVIDIA") {
		t.Errorf("%s", text)
	}
}

func FuzzLoaderConfiguration(f *testing.F) {
	f.Add("/usr/lib\ninclude /etc/*.conf\n")
	f.Add("include [\n#\n/a#b")
	f.Fuzz(func(t *testing.T, text string) {
		s := machine(t, nil, "etc/ld.so.conf: "+text)
		for _, folder := range s.loaderFolders("etc/ld.so.conf", map[string]bool{}) {
			if !filepath.IsAbs(folder) {
				t.Errorf("%q", folder)
			}
		}
	})
}
