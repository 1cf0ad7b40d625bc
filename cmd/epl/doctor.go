// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/doctor"
	"github.com/easyparallel/epl/internal/usage"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/launch"
)

// doctorAgentCommand is what "epl doctor --hosts" starts on each host.
const doctorAgentCommand = "doctor-agent"

// newDoctorCommand makes "epl doctor".
func newDoctorCommand() *cobra.Command {
	var hosts, ssh string
	var asJSON bool
	system := doctor.Here()
	cmd := &cobra.Command{
		Use:   "doctor [flags] [-- program]",
		Short: "Check what this machine, or the machines of a job, lack",
		Long: `Check what this machine lacks: Go, SIMD, cores, memory, limits, ports, clock, MPI, ssh, Slurm, Kubernetes, GPUs and their plugin. Each finding is ok, a
warning or a problem, in one sentence, with the line that mends it. Nothing is changed.

With --hosts, as epl-launch takes it, these machines are checked instead: whether ssh reaches them, whether they have the same epl, epl-launch and
program, whether each can connect to each, how far their clocks are apart, and each machine itself. docs/doctor.md is the guide.

Exit codes: 0 fine, 1 there is a problem, 2 wrong usage.`,
		Example: `  epl doctor
  epl doctor --json
  epl doctor --hosts node1,node2:2 -- ./train`,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := findings(system, hosts, ssh, args)
			if err != nil {
				return err
			}
			write := doctor.Text
			if asJSON {
				write = doctor.JSON
			}
			if err := write(cmd.OutOrStdout(), all); err != nil {
				return err
			}
			if n := doctor.Count(all, doctor.Problem); n > 0 {
				return errors.Errorf("epl: %s found", words.Count(n, "problem"))
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&hosts, "hosts", "", "machines of a job, reached by ssh: a,b:2 (default: this machine)")
	flags.StringVar(&ssh, "ssh", "", "command that runs a command on a host (default "+strings.Join(launch.DefaultSSH, " ")+")")
	flags.IntVar(&system.Port, "port", system.Port, "where the first of several machines listens")
	flags.BoolVar(&asJSON, "json", false, "write JSON, for other programs")
	return cmd
}

// findings checks this machine, or the hosts of a list.
func findings(system *doctor.System, list, ssh string, program []string) ([]doctor.Finding, error) {
	if system.Port < 1 || system.Port > 65535 {
		return nil, usage.Errorf("epl: --port %d: expected a number from 1 to 65535", system.Port)
	}
	if list == "" {
		if len(program) > 0 || ssh != "" {
			return nil, usage.Errorf("epl: a program and --ssh are for other machines; name them by --hosts")
		}
		return doctor.Machine(system), nil
	}
	hosts, err := launch.HostNames(list)
	if err != nil {
		return nil, usage.Of(err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	folder, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	login := launch.DefaultSSH
	if ssh != "" {
		login = strings.Fields(ssh)
	}
	if len(program) > 1 {
		program = program[:1] // the others are its arguments
	}
	agent := launch.RemoteCommand(folder, []string{self}, "epl", doctorAgentCommand)
	return doctor.Job(doctor.Options{Hosts: hosts, Port: system.Port, Program: program, Connect: func(host string) (io.ReadWriteCloser, error) {
		return connect(login, host, agent)
	}}), nil
}

// remote is a command on another machine.
type remote struct {
	io.Reader
	io.WriteCloser
	cmd    *exec.Cmd
	stderr *bytes.Buffer
}

func connect(ssh []string, host, command string) (*remote, error) {
	args := append(append([]string(nil), ssh[1:]...), host, command)
	r := &remote{cmd: exec.Command(ssh[0], args...), stderr: new(bytes.Buffer)}
	r.cmd.Stderr = r.stderr
	var err error
	if r.Reader, err = r.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if r.WriteCloser, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return r, r.cmd.Start()
}

// Close ends the command, and says why it ended by itself.
func (r *remote) Close() error {
	_ = r.WriteCloser.Close() // which ends the agent
	late := time.AfterFunc(5*time.Second, func() { _ = r.cmd.Process.Kill() })
	defer late.Stop()
	err := r.cmd.Wait()
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return err
	}
	why := strings.TrimSpace(r.stderr.String())
	if why == "" {
		why = err.Error()
	}
	const sshFailed = 255
	return &doctor.RemoteError{Login: ended.ExitCode() == sshFailed, Text: strings.ReplaceAll(why, "\n", "; ")}
}

// newDoctorAgentCommand makes what "epl doctor" runs on other machines.
func newDoctorAgentCommand() *cobra.Command {
	return &cobra.Command{
		Use:    doctorAgentCommand,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return doctor.Agent(doctor.Here(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
