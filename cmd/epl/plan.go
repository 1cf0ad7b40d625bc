package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
)

// newPlanCommand makes "epl plan".
func newPlanCommand() *cobra.Command {
	var workers, devices int
	var settings []string
	cmd := &cobra.Command{
		Use:   "plan [flags] -- COMMAND [ARG]...",
		Short: "Show what EPL would do with a training program, and the memory it would take",
		Long: `Run a program until it has built its training step, print how EPL would run that step, and end it there: stages, what
is sent and merged, what each device needs of memory and, if that is more than cluster.device_memory, what would help.

Nothing is trained, and the devices need not exist: --workers and --devices describe any cluster, in place of the one
that the program asks for. --set changes any configuration key, in place of the program's value.`,
		Example: `  epl plan -- go run ./examples/quickstart
  epl plan --devices 8 --set zero.level=v1 -- go run ./examples/bert
  epl plan --workers 2 --devices 4 --set cluster.device_memory=16GiB -- ./train -batch 32`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("epl: which program? For example: epl plan -- go run ./examples/quickstart")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if workers < 1 || devices < 0 {
				return errors.Errorf("epl: --workers %d --devices %d: there must be at least one of each", workers, devices)
			}
			if _, err := parseSettings(settings); err != nil {
				return err
			}
			variables := []string{"EPL_PLAN_SET=" + strings.Join(settings, "\n")}
			if workers > 1 || devices > 0 {
				variables = append(variables, "EPL_NUM_WORKERS="+strconv.Itoa(workers), "EPL_WORKER_INDEX=0",
					"EPL_DEVICES_PER_WORKER="+strconv.Itoa(max(devices, 1)))
			}
			plan, err := planOf(cmd, args, variables)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(plan)
			return err
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&workers, "workers", 1, "number of workers")
	flags.IntVar(&devices, "devices", 0, "devices of each worker (default: what the program asks for, else 1)")
	flags.StringArrayVar(&settings, "set", nil, "change a configuration `key=value`; may be repeated")
	return cmd
}

// planOf runs a program until it has written its plan. What it prints matters only if it does not.
func planOf(cmd *cobra.Command, args, variables []string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "epl-plan-")
	if err != nil {
		return nil, errors.Wrap(err, "epl: no room for the plan")
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "plan.txt")
	var output bytes.Buffer
	program := exec.CommandContext(cmd.Context(), args[0], args[1:]...)
	program.Env = append(append(os.Environ(), variables...), "EPL_PLAN="+file)
	program.Stdout, program.Stderr = &output, &output
	failed := program.Run()
	plan, err := os.ReadFile(file)
	if err == nil {
		return plan, nil
	}
	fmt.Fprint(cmd.ErrOrStderr(), output.String())
	if failed != nil {
		return nil, errors.Wrapf(failed, "epl: %s made no plan", args[0])
	}
	return nil, errors.Errorf("epl: %s ended without a training step: its optimizer has to be wrapped in epl.Optimizer, and its backend has to be EPL's", args[0])
}
