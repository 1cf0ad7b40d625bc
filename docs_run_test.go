// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The commands of each page are run in order, in a folder of their own, as a reader would in a clone. `go` is a script here, testdata/go.sh, so that each program is built
// once. docs_run_table_test.go says which are not run, and why, and which run for fewer steps.

// commandLimit ends a command that hangs. None is meant to take longer than some seconds.
const commandLimit = 2 * time.Minute

//go:embed testdata/go.sh
var goScript string

func TestEveryCommandOfAPageRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts about a hundred programs")
	}
	pages := documents(t)
	delete(pages, "CHANGELOG.md")
	used := make([]bool, len(rules))
	plans := map[string][]command{}
	for page, text := range pages {
		plans[page] = commandsToRun(text, used)
	}
	for i, r := range rules {
		if !used[i] {
			t.Errorf("no page has a command that matches %q: take it out of the table", r.command)
		}
	}
	bin := buildPrograms(t, plans)
	for page, steps := range plans {
		if len(steps) == 0 {
			continue
		}
		t.Run(path.Base(page), func(t *testing.T) {
			t.Parallel()
			runPage(t, bin, steps)
		})
	}
}

// command is one of a page that runs, and the exit status it should have.
type command struct {
	text   string
	status int
}

// commandsToRun returns what runs of a page's commands, and marks the rules that it has met.
func commandsToRun(text string, used []bool) (steps []command) {
	for _, line := range shellLines(text) {
		line = strings.TrimSpace(shellComment.ReplaceAllString(line, "$1"))
		if line == "" || line == "…" {
			continue
		}
		i := slices.IndexFunc(rules, func(r rule) bool { return r.command.MatchString(line) })
		if i < 0 {
			steps = append(steps, command{text: line})
			continue
		}
		used[i] = true
		if r := rules[i]; r.not == "" {
			if r.before != "" {
				steps = append(steps, command{text: r.before})
			}
			steps = append(steps, command{r.command.ReplaceAllString(line, r.instead), r.status})
		}
	}
	return steps
}

var goRun = regexp.MustCompile(`\bgo (?:run|build -o \S+) \./([\w/]+)|(examples/\w+)/run\.sh`)

// buildPrograms builds the programs that the commands name, and returns their folder, which also has the script go.
func buildPrograms(t *testing.T, plans map[string][]command) string {
	t.Helper()
	bin := t.TempDir()
	folders := []string{"./cmd/epl", "./cmd/epl-launch", "./" + ownProgram, "./" + ownFolder}
	for _, steps := range plans {
		for _, s := range steps {
			for _, m := range goRun.FindAllStringSubmatch(s.text, -1) {
				folders = append(folders, "./"+m[1]+m[2])
			}
		}
	}
	slices.Sort(folders)
	folders = slices.Compact(folders)
	names := map[string]bool{}
	for _, folder := range folders {
		if name := path.Base(folder); names[name] {
			t.Fatalf("two programs are called %s", name)
		} else {
			names[name] = true
		}
	}
	if out, err := exec.Command("go", append([]string{"build", "-ldflags=-w", "-o", bin + "/"}, folders...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(goScript), 0o755); err != nil {
		t.Fatal(err)
	}
	return bin
}

// runPage runs the commands of a page in a folder that looks like a clone with a program of the reader's.
func runPage(t *testing.T, bin string, steps []command) {
	work := t.TempDir()
	for _, name := range []string{"examples", "deploy"} {
		at, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at, filepath.Join(work, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(bin, path.Base(ownProgram)), filepath.Join(work, "train")); err != nil {
		t.Fatal(err)
	}
	var exports []string
	for _, s := range steps {
		if strings.HasPrefix(s.text, "export ") {
			exports = append(exports, s.text)
		}
		began := time.Now()
		out, err := runCommand(bin, work, append(slices.Clone(exports), s.text))
		t.Logf("%.1f s: %s", time.Since(began).Seconds(), s.text)
		if got := exitStatus(err); got != s.status {
			t.Fatalf("%s: %v, and status %d was expected\n%s", s.text, err, s.status, out) // what follows may need its files
		}
	}
}

// exitStatus is that of a command, and -1 if it has none.
func exitStatus(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

func runCommand(bin, work string, lines []string) ([]byte, error) {
	realGo, err := exec.LookPath("go")
	if err != nil {
		return nil, err
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -e\n"+strings.Join(lines, "\n"))
	cmd.Dir = work
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "EPL_") && !strings.HasPrefix(v, "GOMLX_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "DOCS_GO="+realGo, "DOCS_ROOT="+root, "DOCS_FOLDER="+path.Base(ownFolder),
		"HOME="+work, "XDG_CACHE_HOME="+work+"/cache", "XDG_CONFIG_HOME="+work+"/config")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}
