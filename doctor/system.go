// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cpu/isa"
	"github.com/easyparallel/epl/launch"
)

// System is a machine, as far as checks look at it.
type System struct {
	Root string // of the file system
	Home string // of the user
	OS   string // as Go names it, and the architecture
	Arch string
	Port int // where the first machine of a job listens

	Env func(name string) (value string, set bool)
	// Run runs a command for a few seconds at most, and returns what it prints. The error is exec.ErrNotFound if there is no such command.
	Run func(name string, args ...string) (string, error)
	// Path finds a command.
	Path     func(name string) (string, error)
	Listen   func(address string) (net.Listener, error)
	Size     func(path string) (bytes int64, err error) // of a file system
	Synced   func() (synchronised, known bool)          // the clock, by NTP
	ISA      func() (best isa.Level, wrong error)       // the instructions of the CPU, and what is wrong with EPL_CPU_ISA
	Settings func() error                               // what is wrong with the configuration in the environment
}

// Here is this machine.
func Here() *System {
	home, _ := os.UserHomeDir() // without one, there is nothing to look for in it
	return &System{
		Root: "/", Home: home, OS: runtime.GOOS, Arch: runtime.GOARCH, Port: launch.DefaultPort,
		Env:    os.LookupEnv,
		Run:    run,
		Path:   exec.LookPath,
		Listen: func(address string) (net.Listener, error) { return net.Listen("tcp", address) },
		Size:   fileSystemSize,
		Synced: clockSynced,
		ISA:    func() (isa.Level, error) { return isa.Best(), isa.Check() },
		Settings: func() error {
			_, err := config.New(nil)
			return err
		},
	}
}

// commandTime is how long a command may take.
const commandTime = 10 * time.Second

func run(name string, args ...string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", exec.ErrNotFound
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = errors.Errorf("no answer in %s", commandTime)
	}
	return strings.TrimSpace(string(out)), err
}

// env is the value of a variable, or "".
func (s *System) env(name string) string {
	value, _ := s.Env(name)
	return strings.TrimSpace(value)
}

// read is the text of a file, without blanks around it; "": it cannot be read.
func (s *System) read(path string) string {
	text, _ := os.ReadFile(filepath.Join(s.Root, path))
	return strings.TrimSpace(string(text))
}

// field is what follows a word at the beginning of a line of a file.
func (s *System) field(path, word string) string {
	for line := range strings.Lines(s.read(path)) {
		if rest, found := strings.CutPrefix(line, word); found {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// group is the text of a file of the control group of this process: of its version 2, or of a controller of version 1. In a container the group may
// be the root of what can be seen.
func (s *System) group(file, controller, fileV1 string) string {
	for line := range strings.Lines(s.read("proc/self/cgroup")) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		folder, name := "sys/fs/cgroup", file
		if fields[0] != "0" {
			if !strings.Contains(","+fields[1]+",", ","+controller+",") {
				continue
			}
			folder, name = filepath.Join(folder, controller), fileV1
		}
		for _, path := range []string{fields[2], ""} {
			if text := s.read(filepath.Join(folder, path, name)); text != "" {
				return text
			}
		}
	}
	return ""
}

// limit is the hard limit of this process that a line of /proc/self/limits begins with; -1: there is none, or it is not known.
func (s *System) limit(name string) int64 {
	fields := strings.Fields(s.field("proc/self/limits", name))
	if len(fields) < 2 {
		return -1
	}
	n, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// firstLine is the first line of what a command printed.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(line)
}

// lastLine is the last line of it, where errors are, without the mark at its end.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimRight(text[strings.LastIndexByte(text, '\n')+1:], ".?! ")
}
