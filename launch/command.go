// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
)

// resolve turns the user's command into one that can be started as it is, so that a spelling mistake is found before
// anything runs. The directory is where the workers will run, the environment theirs.
func resolve(command []string, directory string, environ []string) ([]string, error) {
	name, args := command[0], command[1:]
	if path, err := lookPath(name, environ); err == nil {
		return runnable(path, args)
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(directory, path)
	}
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return nil, errors.Errorf("epl: the command %q was not found, neither in PATH nor as a file in %s; check its spelling, or give its path",
			name, directory)
	}
	return runnable(path, args)
}

// lookPath is exec.LookPath for the PATH of the workers. Names with a separator are not its business.
func lookPath(name string, environ []string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return "", exec.ErrNotFound
	}
	path, _ := lookup(environ, "PATH")
	for _, directory := range filepath.SplitList(path) {
		if file := filepath.Join(directory, name); filepath.IsAbs(file) {
			if _, err := exec.LookPath(file); err == nil {
				return file, nil
			}
		}
	}
	return "", exec.ErrNotFound
}

// runnable returns how to run a file that exists: by itself, or by sh if it is a script that the system would refuse.
func runnable(path string, args []string) ([]string, error) {
	file, err := os.Open(path)
	if os.IsPermission(err) { // executable, but not readable
		return append([]string{path}, args...), nil
	} else if err != nil {
		return nil, errors.Errorf("epl: cannot read the command: %v", err)
	}
	defer file.Close()
	start := make([]byte, 512)
	n, _ := file.Read(start)
	start = start[:n]
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Errorf("epl: cannot read the command: %v", err)
	}
	binary, executable := bytes.IndexByte(start, 0) >= 0, info.Mode()&0o111 != 0
	switch {
	case executable && (binary || bytes.HasPrefix(start, []byte("#!"))):
		return append([]string{path}, args...), nil
	case binary:
		return nil, errors.Errorf("epl: %s is a program, but not executable; run chmod +x %s", path, path)
	}
	return append([]string{"/bin/sh", path}, args...), nil
}

// buildOnce turns "go run PACKAGE ARGS" into the program that it would build, so that many workers do not build it many
// times and signals reach the program itself. Other commands, and flags of go run that it does not understand, stay. made is
// told of the directory in which the program will be, as soon as that is there; cleanup removes it.
func buildOnce(ctx context.Context, command []string, directory string, environ []string, made func(directory string)) (built []string, cleanup func(), err error) {
	nothing := func() {}
	flags, packages, args, ok := splitGoRun(command)
	if !ok {
		return command, nothing, nil
	}
	goCommand, err := lookPath("go", environ)
	if err != nil {
		return nil, nothing, errors.New(`epl: the command "go" was not found in PATH; install Go, or build the program and launch that`)
	}
	const variable = "GOTMPDIR" // where go run would put the program
	above, _ := lookup(environ, variable)
	temporary, err := os.MkdirTemp(above, "epl-launch-")
	if err != nil {
		return nil, nothing, errors.Errorf("epl: cannot build the program: %v", err)
	}
	made(temporary)
	cleanup = func() { os.RemoveAll(temporary) }
	program := filepath.Join(temporary, programName(packages[0], directory))
	build := exec.CommandContext(ctx, goCommand, append(append(append([]string{"build"}, flags...), "-o", program), packages...)...)
	// What go build itself leaves if it is killed is removed with the rest.
	build.Dir, build.Env = directory, append(environ[:len(environ):len(environ)], variable+"="+temporary)
	if output, err := build.CombinedOutput(); err != nil {
		cleanup()
		return nil, nothing, errors.Errorf("epl: go build failed (%v):\n%s", err, bytes.TrimSpace(output))
	}
	return append([]string{program}, args...), cleanup, nil
}

// programName is the base name of a package or file, as go run shows it in the list of processes.
func programName(pkg, directory string) string {
	if strings.HasPrefix(pkg, ".") {
		pkg = filepath.Join(directory, pkg)
	}
	name, _, _ := strings.Cut(filepath.Base(pkg), "@")
	if name = strings.TrimSuffix(name, ".go"); name == "" || name == string(filepath.Separator) {
		return "program"
	}
	return name
}

// switches are the build flags that take no value.
var switches = map[string]bool{
	"-a": true, "-race": true, "-msan": true, "-asan": true, "-cover": true, "-v": true, "-work": true, "-x": true,
	"-linkshared": true, "-modcacherw": true, "-trimpath": true,
}

// splitGoRun takes apart a command "go run [build flags] package [arguments]". It is not ok for other commands, and for
// flags that make go run do something else than to build and run.
func splitGoRun(command []string) (flags, packages, args []string, ok bool) {
	if len(command) < 3 || command[0] != "go" || command[1] != "run" {
		return nil, nil, nil, false
	}
	rest := command[2:]
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		flag, _, hasValue := strings.Cut("-"+strings.TrimLeft(rest[0], "-"), "=")
		n := 2
		if hasValue || switches[flag] {
			n = 1
		}
		if flag == "-exec" || flag == "-n" || flag == "-C" || flag == "-" || len(rest) < n {
			return nil, nil, nil, false
		}
		flags, rest = append(flags, rest[:n]...), rest[n:]
	}
	files := 0
	for files < len(rest) && strings.HasSuffix(rest[files], ".go") {
		files++
	}
	if files = max(files, 1); len(rest) < files {
		return nil, nil, nil, false
	}
	return flags, rest[:files], rest[files:], true
}
