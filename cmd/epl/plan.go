package main

import (
	"bytes"
	"fmt"
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
	var workers, devices int
	var settings []string
	var memory string
	cmd := &cobra.Command{
		Use:   "plan [flags] -- COMMAND [ARG]...",
		Short: "Show what EPL would do with a training program, and the memory it would take",
		Long: `Run a program until it has built its training step, print how EPL would run that step, and end it there: stages, what
is sent and merged, what each device needs of memory and, if that is more than cluster.device_memory, what would help.

Nothing is trained, and the devices need not exist: --workers and --devices describe any cluster, in place of the one
that the program asks for. --set changes any configuration key, in place of the program's value. --memory draws what
lives on each device over the step, by what it is for.

` + usage.ExitCodes,
		Example: `  epl plan -- go run ./examples/quickstart
  epl plan --devices 8 --set zero.level=v1 -- go run ./examples/bert
  epl plan --workers 2 --devices 4 --set cluster.device_memory=16GiB -- ./train -batch 32
  epl plan --memory memory.svg -- go run ./examples/pipeline`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("epl: which program? For example: epl plan -- go run ./examples/quickstart")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if workers < 1 || devices < 0 {
				return usage.Errorf("epl: --workers %d --devices %d: there must be at least one of each", workers, devices)
			}
			if err := checkSettings(settings); err != nil {
				return err
			}
			if err := checkPicture(memory); err != nil {
				return err
			}
			variables := []string{"EPL_PLAN_SET=" + strings.Join(settings, "\n")}
			if workers > 1 || devices > 0 {
				perWorker := "" // what the program asks for
				if devices > 0 {
					perWorker = strconv.Itoa(devices)
				}
				variables = append(variables, "EPL_NUM_WORKERS="+strconv.Itoa(workers), "EPL_WORKER_INDEX=0", "EPL_DEVICES_PER_WORKER="+perWorker)
			}
			plan, picture, err := planOf(cmd, args, variables)
			if err != nil {
				return err
			}
			if _, err := cmd.OutOrStdout().Write(plan); err != nil || memory == "" {
				return err
			}
			return errors.Wrap(os.WriteFile(memory, picture, 0o644), "epl: --memory")
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command is its own
	flags.IntVar(&workers, "workers", 1, "number of workers")
	flags.IntVar(&devices, "devices", 0, "devices of each worker (default: what the program asks for, else 1)")
	flags.StringArrayVar(&settings, "set", nil, "change a configuration `key=value`; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", completeSettings) // the flag is there
	flags.StringVar(&memory, "memory", "", "draw what lives on each device over the step, in an SVG `file`")
	return cmd
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

// checkPicture finds out before the program is run whether its picture has a place.
func checkPicture(file string) error {
	if file == "" {
		return nil
	}
	if strings.ToLower(filepath.Ext(file)) != ".svg" {
		return usage.Errorf("epl: --memory %s: the picture is an .svg", file)
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return usage.Errorf("epl: --memory %s: there is no folder %s", file, filepath.Dir(file))
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return usage.Errorf("epl: --memory %s is a folder; name a file", file)
	}
	return nil
}

// runUntil runs a program until it ends. One that goes on though a file is there is ended, with all that it started.
func runUntil(program *exec.Cmd, file string) error {
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
			if _, err := os.Stat(file); err != nil {
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

// planOf runs a program until it has written its plan, and a picture of its memory. What it prints matters only if it does not.
func planOf(cmd *cobra.Command, args, variables []string) (plan, picture []byte, err error) {
	dir, err := os.MkdirTemp("", "epl-plan-")
	if err != nil {
		return nil, nil, errors.Wrap(err, "epl: no room for the plan")
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "plan.txt")
	var output bytes.Buffer
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM) // it does not get the terminal's
	defer stop()
	program := exec.CommandContext(ctx, args[0], args[1:]...)
	program.Env = append(append(os.Environ(), variables...), "EPL_PLAN="+file)
	program.Stdout, program.Stderr = &output, &output
	failed := runUntil(program, file)
	if plan, err = os.ReadFile(file); err == nil {
		picture, err = os.ReadFile(file + ".svg")
		return plan, picture, errors.Wrapf(err, "epl: %s drew no picture of its memory", args[0])
	}
	fmt.Fprint(cmd.ErrOrStderr(), output.String())
	if failed != nil {
		return nil, nil, errors.Wrapf(failed, "epl: %s made no plan", args[0])
	}
	return nil, nil, errors.Errorf("epl: %s ended without a training step: its optimizer has to be wrapped in epl.Optimizer, and its backend has to be EPL's", args[0])
}
