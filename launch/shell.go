// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/hostmem"
	"github.com/easyparallel/epl/wire"
)

// shell is a launcher on another machine that was started by ssh.
type shell struct {
	cmd      *exec.Cmd
	input    io.WriteCloser
	output   io.Reader
	complain sync.WaitGroup
}

// overShell starts a launcher on another machine, as an agent. note is told what ssh, or the launcher, complains about.
func overShell(host, directory string, ssh, self []string, note func(text string)) (s *shell, err error) {
	s = &shell{cmd: exec.Command(ssh[0], append(slices.Clone(ssh[1:]), host, RemoteCommand(directory, self, "epl-launch", "--agent"))...)}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is ours to pass on
	if s.output, err = s.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	complaints, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if s.input, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Errorf("epl: cannot reach %s: %v", host, err)
	}
	s.complain.Go(func() {
		cutLines(complaints, func(text string, update bool) {
			if !update {
				note(text)
			}
		})
	})
	return s, nil
}

func (s *shell) cut() { syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }

// wait returns how it ended. Its output must have been read to the end.
func (s *shell) wait() error {
	s.complain.Wait()
	return s.cmd.Wait()
}

// reach starts a launcher on another machine, which stays when a generation ends.
func (e *elastic) reach(host string) (*caller, error) {
	s, err := overShell(host, e.job.Directory, e.SSH, e.Self, func(text string) { e.display.note("%s: %s", host, text) })
	if err != nil {
		return nil, err
	}
	return &caller{Writer: s.input, in: json.NewDecoder(s.output), private: true, cut: s.cut, end: func() error {
		_ = s.input.Close()
		timer := time.AfterFunc(agentEnd, s.cut)
		defer timer.Stop()
		_, _ = io.Copy(io.Discard, s.output)
		return s.wait()
	}}, nil
}

// RemoteCommand is the command line for the shell of another machine that runs a program of EPL there, in a directory: self, where it is here, or else
// the one of that name in PATH.
func RemoteCommand(directory string, self []string, name, argument string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	var here []string
	for _, word := range self {
		here = append(here, quote(word))
	}
	return fmt.Sprintf("cd %s && if [ -x %s ]; then exec %s %s; else exec %s %s; fi",
		quote(directory), here[0], strings.Join(here, " "), argument, name, argument)
}

// stay runs the crews of all generations of an elastic job on this machine, and holds memory for them.
func stay(s summons, self []string, in *json.Decoder, say func(report), signals <-chan os.Signal) int {
	memory, err := hostmem.New(wire.NewToken()[:16], 4*s.Spec.LocalWorkers) // two of a worker, and two of the one before it
	if err != nil {
		say(report{Error: err.Error()})
		return 1
	}
	defer memory.Close()
	for s.Over == nil {
		if s.Spec != nil {
			mine := *s.Spec
			if memory != nil {
				mine.Memory = memory.Name
			}
			if serve(mine, os.Environ(), self, in, say, signals) != 0 {
				say(report{End: true}) // it could not be prepared
			}
		}
		s = summons{}
		if in.Decode(&s) != nil {
			break
		}
	}
	return 0
}
