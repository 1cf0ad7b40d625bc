// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/internal/usage"
)

// newPlanCommand makes "epl plan".
func newPlanCommand() *cobra.Command {
	var asked planned
	var files outFiles
	cmd := &cobra.Command{
		Use:   "plan [flags] -- COMMAND [ARG]...",
		Short: "Show what EPL would do with a training program, and the memory it would take",
		Long: `Run a program until it has built its training step, print how EPL would run that step, and end it there: stages, what
is sent and merged, what each device needs of memory and, if that is more than cluster.device_memory, what would help.

Nothing is trained, and the devices need not exist: --workers and --devices, or --cluster, describe any cluster, in place of
the one that the program asks for. --set changes any configuration key, in place of the program's value. --memory draws what
lives on each device over the step, by what it is for. --json writes the plan as data: "epl plan diff" compares two, and
EPL_PLAN_FILE, epl-launch --plan and epl.WithPlan run by one. --html shows it as a page: what runs where, memory, the predicted
timeline, and the ways that were compared. A file "-" is standard output.
docs/plans.md is the guide.

` + usage.ExitCodes,
		Example: `  epl plan -- go run ./examples/quickstart
  epl plan --devices 8 --set offload.level=v0 -- go run ./examples/bert
  epl plan --workers 2 --devices 4 --set cluster.device_memory=16GiB -- ./train -batch 32
  epl plan --memory memory.svg -- go run ./examples/pipeline
  epl plan --cluster 8x8xV100-32 --json plan.json --html plan.html -- ./train
  epl plan diff before.json plan.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("epl: which program? For example: epl plan -- go run ./examples/quickstart")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			variables, err := asked.variables(cmd)
			if err != nil {
				return err
			}
			if err := files.check(); err != nil {
				return err
			}
			made, err := planOf(cmd, args, variables, files.endings()...)
			if err != nil {
				return err
			}
			return files.write(cmd.OutOrStdout(), made, made[""])
		},
	}
	cmd.AddCommand(newPlanDiffCommand())
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command is its own
	asked.add(cmd)
	files.add(cmd, "memory", ".svg", "draw what lives on each device over the step, in an SVG `file`")
	files.add(cmd, "json", ".json", "write the plan as JSON into a `file`, to compare and to pin it")
	files.add(cmd, "html", ".html", "write the plan as a page into a `file`")
	return cmd
}

// planned is what a plan is asked for.
type planned struct {
	workers, devices int
	settings         []string
	cluster          string
}

// add adds the flags.
func (x *planned) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&x.workers, "workers", 1, "number of workers")
	flags.IntVar(&x.devices, "devices", 0, "devices of each worker (default: what the program asks for, else 1)")
	flags.StringArrayVar(&x.settings, "set", nil, "change a configuration `key=value`; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", completeSettings) // the flag is there
	flags.StringVar(&x.cluster, "cluster", "", "workers and devices: `8x8`, 8x8xV100-32, 4+2, or a file that describes them")
}

// variables are those that ask a program for it.
func (x *planned) variables(cmd *cobra.Command) (variables []string, err error) {
	if x.workers < 1 || x.devices < 0 {
		return nil, usage.Errorf("epl: --workers %d --devices %d: there must be at least one of each", x.workers, x.devices)
	}
	if err := checkSettings(x.settings); err != nil {
		return nil, err
	}
	settings := x.settings
	switch {
	case x.cluster == "" && cmd.Flags().Changed("cluster"):
		return nil, usage.Errorf("epl: --cluster is empty; write workers and devices, such as 8x8xV100-32, or leave it out")
	case x.cluster != "":
		if flags := cmd.Flags(); flags.Changed("workers") || flags.Changed("devices") {
			return nil, usage.Errorf("epl: --cluster %s says which workers and devices there are; leave --workers and --devices out", x.cluster)
		}
		d, err := describe(x.cluster)
		if err != nil {
			return nil, err
		}
		variables = d.variables()
		if d.memory != "" {
			settings = append([]string{"cluster.device_memory=" + d.memory}, settings...) // a later one wins
		}
	case x.workers > 1 || x.devices > 0:
		perWorker := "" // what the program asks for
		if x.devices > 0 {
			perWorker = strconv.Itoa(x.devices)
		}
		variables = append(variables, "EPL_NUM_WORKERS="+strconv.Itoa(x.workers), "EPL_WORKER_INDEX=0", "EPL_DEVICES_PER_WORKER="+perWorker)
	}
	return append(variables, "EPL_PLAN_SET="+strings.Join(settings, "\n"), "EPL_PLAN_CLUSTER="+x.described()), nil
}

// described is the description of the cluster for a program that may run in another folder.
func (x *planned) described() string {
	if file, err := filepath.Abs(x.cluster); err == nil && x.cluster != "" {
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return x.cluster
}

// checkSettings finds out before the program is run whether there are such keys. What their values go with, only the program knows.
func checkSettings(settings []string) error {
	if _, err := parseSettings(settings); err != nil {
		return err
	}
	for _, setting := range settings {
		key, _, _ := strings.Cut(setting, "=")
		if _, err := new(config.Config).Entry(key); err != nil {
			return usage.Of(err)
		}
	}
	return nil
}

// outFile is where something goes besides the text; "" for nowhere, "-" for standard output instead of the text.
type outFile struct{ flag, name, ending string }

// outFiles are the files that can be asked for. Endings say which of those that the program wrote they are.
type outFiles []*outFile

// add adds a flag.
func (x *outFiles) add(cmd *cobra.Command, flag, ending, says string) {
	f := &outFile{flag: "--" + flag, ending: ending}
	cmd.Flags().StringVar(&f.name, flag, "", says)
	*x = append(*x, f)
}

// endings are those of all files.
func (x outFiles) endings() (all []string) {
	for _, f := range x {
		all = append(all, f.ending)
	}
	return all
}

// each calls f for every file that is asked for: its flag, its name, and which it is.
func (x outFiles) each(f func(flag, name, ending string) error) error {
	for _, a := range x {
		if a.name != "" {
			if err := f(a.flag, a.name, a.ending); err != nil {
				return err
			}
		}
	}
	return nil
}

// check finds out before the program is run whether files have a place.
func (x outFiles) check() error {
	out := ""
	return x.each(func(flag, file, ending string) error {
		if file == "-" {
			if out != "" {
				return usage.Errorf("epl: %s - and %s -: there is one standard output; name a file", out, flag)
			}
			out = flag
			return nil
		}
		if kind := filepath.Ext(ending); kind == ".svg" && strings.ToLower(filepath.Ext(file)) != kind {
			return usage.Errorf("epl: %s %s: the picture is an %s", flag, file, kind)
		}
		return checkPlace(flag, file)
	})
}

// checkPlace refuses a file that cannot be.
func checkPlace(flag, file string) error {
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return usage.Errorf("epl: %s %s: there is no folder %s", flag, file, filepath.Dir(file))
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return usage.Errorf("epl: %s %s is a folder; name a file", flag, file)
	}
	return nil
}

// write writes the files that are asked for, and the text unless one of them is on standard output. made has them by their endings.
func (x outFiles) write(stdout io.Writer, made map[string][]byte, text []byte) error {
	err := x.each(func(flag, file, ending string) error {
		if file == "-" {
			text = made[ending]
			return nil
		}
		return errors.Wrap(os.WriteFile(file, made[ending], 0o644), "epl: "+flag)
	})
	if err == nil {
		_, err = stdout.Write(text)
	}
	return err
}

// runUntil runs a program until it ends. One that goes on though there is what it was run for is ended, with all that it started.
func runUntil(program *exec.Cmd, there func() bool) error {
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	signal := func(s syscall.Signal) { _ = syscall.Kill(-program.Process.Pid, s) } // it may have ended by now
	program.Cancel = func() error { signal(syscall.SIGKILL); return nil }
	if err := program.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	const look, grace = 50 * time.Millisecond, 2 * time.Second
	tick := time.NewTicker(look)
	defer tick.Stop()
	var seen time.Time
	for {
		select {
		case err := <-ended:
			return err
		case now := <-tick.C:
			if !there() {
				continue
			}
			switch {
			case seen.IsZero():
				seen = now
			case now.Sub(seen) > 2*grace:
				signal(syscall.SIGKILL)
			case now.Sub(seen) > grace:
				signal(syscall.SIGTERM)
			}
		}
	}
}

// planOf runs a program until it has written its plan, and returns the files of it by their endings; that of the text is "". What the
// program prints matters only if it has written none.
func planOf(cmd *cobra.Command, args, variables []string, endings ...string) (made map[string][]byte, err error) {
	dir, err := os.MkdirTemp("", "epl-plan-")
	if err != nil {
		return nil, errors.Wrap(err, "epl: no room for the plan")
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "plan.txt")
	var output bytes.Buffer
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM) // it does not get the terminal's
	defer stop()
	program := exec.CommandContext(ctx, args[0], args[1:]...)
	program.Env = append(append(os.Environ(), variables...), "EPL_PLAN_OUT="+file)
	program.Stdout, program.Stderr = &output, &output
	failed := runUntil(program, func() bool { _, err := os.Stat(file); return err == nil })
	if _, err := os.Stat(file); err == nil {
		made = map[string][]byte{}
		for _, ending := range append(endings, "") {
			if made[ending], err = os.ReadFile(file + ending); err != nil {
				return nil, errors.Wrapf(err, "epl: %s wrote a part of its plan only", args[0])
			}
		}
		return made, nil
	}
	fmt.Fprint(cmd.ErrOrStderr(), output.String())
	if failed != nil {
		return nil, errors.Wrapf(failed, "epl: %s made no plan", args[0])
	}
	return nil, errors.Errorf("epl: %s ended without a training step: its optimizer has to be wrapped in epl.Optimizer, and its backend has to be EPL's", args[0])
}
