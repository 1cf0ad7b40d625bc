// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package find looks for PJRT plugins in the file system. It loads none, so programs that only want to know where they are need no dynamic loader.
package find

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// LibraryPath is the environment variable that says where plugins are: folders or files, separated by colons.
const LibraryPath = "PJRT_PLUGIN_LIBRARY_PATH"

// Plugin returns the path of a plugin, by its name, such as "cuda", "cuda12" or "cpu". A name with a slash is a path already.
//
// If PJRT_PLUGIN_LIBRARY_PATH is set, it looks there only. Else it looks in the folders of go-xla (~/.local/lib/go-xla,
// /usr/local/lib/go-xla, LD_LIBRARY_PATH and those of /etc/ld.so.conf), then among the Python packages of JAX: in the active
// virtual environment, PYTHONPATH, those of the python3 on the PATH, of the user and of the system.
//
// The error is a [*NotFoundError], which says where it looked and what to install.
func Plugin(name string) (string, error) {
	home, _ := os.UserHomeDir() // without one, there is nothing to look for in it
	python, _ := exec.LookPath("python3")
	return System{Root: "/", Home: home, Python: python, Env: os.Getenv}.Plugin(name)
}

// System is where plugins may be.
type System struct {
	Root, Home string
	Python     string // the path of the interpreter, or empty
	Env        func(string) string
}

var (
	pluginFile    = regexp.MustCompile(`^(?:pjrt_c_api_(.+)_plugin|pjrt[-_]plugin[-_](.+)|xla_(.+)_plugin)\.(?:so|dylib)$`)
	versionSuffix = regexp.MustCompile(`[0-9]+$`)
)

// IsPlugin tells whether a file is the plugin with a name: cuda12 is also cuda.
func IsPlugin(file, name string) bool {
	m := pluginFile.FindStringSubmatch(filepath.Base(file))
	if m == nil {
		return false
	}
	of := m[1] + m[2] + m[3]
	return of == name || versionSuffix.ReplaceAllString(of, "") == name
}

// Plugin is [Plugin] of a system.
func (s System) Plugin(name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return name, nil
	}
	missing := &NotFoundError{Name: name}
	if list := s.Env(LibraryPath); list != "" {
		missing.FromEnv = true
		missing.Folders = filepath.SplitList(list)
		for _, entry := range missing.Folders {
			if info, err := os.Stat(entry); err == nil && info.Mode().IsRegular() {
				return entry, nil
			}
		}
	} else {
		missing.Folders, missing.Packages = s.folders(), s.packages()
	}
	for _, folder := range missing.Folders {
		if path := inFolder(folder, name); path != "" {
			return path, nil
		}
	}
	kind := versionSuffix.ReplaceAllString(name, "")
	for _, folder := range missing.Packages {
		found, _ := filepath.Glob(filepath.Join(folder, "jax_plugins", "xla_"+name+"*", "xla_"+kind+"_plugin.so"))
		if len(found) > 0 {
			return slices.Max(found), nil // the newest CUDA
		}
	}
	missing.NoGPU = kind == "cuda" && NoGPU(s.Root)
	return "", missing
}

// NoGPU tells whether a machine with a root folder seems to have no NVIDIA GPU.
func NoGPU(root string) bool {
	devices, _ := filepath.Glob(filepath.Join(root, "dev", "nvidia*"))
	return len(devices) == 0
}

func inFolder(folder, name string) string {
	entries, _ := os.ReadDir(folder) // one that is not there holds no plugin
	for _, e := range entries {
		if IsPlugin(e.Name(), name) {
			return filepath.Join(folder, e.Name())
		}
	}
	return ""
}

// folders are where go-xla installs plugins and looks for them.
func (s System) folders() (list []string) {
	for _, lib := range []string{filepath.Join(s.Home, ".local", "lib"), filepath.Join(s.Root, "usr", "local", "lib")} {
		if filepath.IsAbs(lib) {
			list = append(list, filepath.Join(lib, "go-xla"), filepath.Join(lib, "go-xla", "nvidia"), filepath.Join(lib, "gomlx", "pjrt"))
		}
	}
	for _, folder := range filepath.SplitList(s.Env("LD_LIBRARY_PATH")) {
		if filepath.IsAbs(folder) {
			list = append(list, folder)
		}
	}
	return unique(append(list, s.loaderFolders(filepath.Join("etc", "ld.so.conf"), map[string]bool{})...))
}

// loaderFolders reads the folders of a configuration file of the dynamic loader, with the files that it includes.
func (s System) loaderFolders(path string, seen map[string]bool) (list []string) {
	if seen[path] {
		return nil
	}
	seen[path] = true
	file, err := os.Open(filepath.Join(s.Root, path))
	if err != nil {
		return nil // there are systems without
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "include":
			pattern := words[1]
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(string(filepath.Separator), filepath.Dir(path), pattern)
			}
			included, _ := filepath.Glob(filepath.Join(s.Root, pattern))
			for _, file := range included {
				if inside, err := filepath.Rel(s.Root, file); err == nil {
					list = append(list, s.loaderFolders(inside, seen)...)
				}
			}
		case len(words) == 1 && filepath.IsAbs(words[0]):
			list = append(list, words[0])
		}
	}
	return list
}

// packages are the folders of Python packages.
func (s System) packages() (list []string) {
	prefixes := []string{s.Env("VIRTUAL_ENV"), s.Env("CONDA_PREFIX")}
	if s.Python != "" {
		prefixes = append(prefixes, filepath.Dir(filepath.Dir(s.Python)))
		if real, err := filepath.EvalSymlinks(s.Python); err == nil {
			prefixes = append(prefixes, filepath.Dir(filepath.Dir(real)))
		}
	}
	if s.Home != "" {
		prefixes = append(prefixes, filepath.Join(s.Home, ".local"))
	}
	prefixes = append(prefixes, filepath.Join(s.Root, "usr", "local"), filepath.Join(s.Root, "usr"))
	for _, folder := range filepath.SplitList(s.Env("PYTHONPATH")) {
		if folder != "" {
			list = append(list, folder)
		}
	}
	for _, prefix := range prefixes {
		if prefix == "" {
			continue
		}
		for _, lib := range []string{"lib", "lib64"} {
			for _, kind := range []string{"site-packages", "dist-packages"} {
				found, _ := filepath.Glob(filepath.Join(prefix, lib, "python3*", kind))
				list = append(list, found...)
			}
		}
	}
	return unique(list)
}

// unique drops what was in the list before.
func unique(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(s string) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}

// NotFoundError says that there is no plugin, where [Plugin] looked for it, and what to do.
type NotFoundError struct {
	Name     string
	FromEnv  bool     // PJRT_PLUGIN_LIBRARY_PATH is set, so it looked there only
	Folders  []string // that may hold the plugin itself
	Packages []string // that may hold Python packages
	NoGPU    bool     // it is a plugin for NVIDIA's GPUs, and there seems to be none
}

// Error is a text of several lines.
func (e *NotFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pjrt: there is no plugin %q for XLA.", e.Name)
	list := func(title string, folders []string) {
		if len(folders) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n%s", title)
		for _, f := range folders {
			fmt.Fprintf(&b, "\n    %s", f)
			if _, err := os.Stat(f); err != nil {
				b.WriteString(" (not there)")
			}
		}
	}
	where := "Looked for pjrt_c_api_" + e.Name + "_plugin.so in"
	if e.FromEnv {
		where += ", as " + LibraryPath + " says,"
	}
	list(where, e.Folders)
	list("Looked for jax_plugins/xla_"+e.Name+"*, a package of JAX, in", e.Packages)
	b.WriteString("\nInstall it:")
	if versionSuffix.ReplaceAllString(e.Name, "") == "cuda" {
		b.WriteString("\n    pip install \"jax[cuda13]\"    (or jax[cuda12] for older drivers; it brings NVIDIA's libraries)")
	}
	b.WriteString("\n    go run github.com/gomlx/go-xla/cmd/pjrt_installer@latest")
	fmt.Fprintf(&b, "\nor say where it is: %s=/folder/of/the/plugin, or the file itself.", LibraryPath)
	if e.NoGPU {
		b.WriteString("\nThis machine seems to have no NVIDIA GPU: there is no /dev/nvidia*.")
	}
	return b.String()
}
