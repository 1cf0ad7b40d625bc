// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/internal/usage"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/simulate"
)

// newSimulateCommand makes "epl simulate".
func newSimulateCommand() *cobra.Command {
	var asked planned
	var file string
	var changes []string
	var files outFiles
	cmd := &cobra.Command{
		Use:   "simulate [flags] -- COMMAND [ARG]...",
		Short: "Predict the time of a training step on a cluster that need not exist",
		Long: `Run a program until it has built its training step, simulate that step, and end it there: what a step takes, what each device
does in it, what waits for what. Nothing is trained.

The devices are those of --cluster, with a profile ("epl plan --cluster 2x8xV100-32"), or those of this machine, if "epl calibrate"
has measured it. --what-if simulates the step again with another cluster: bandwidth=2 and latency=0.5 are so many times those of all
links, straggler=3:1.5 lets device 3 take 1.5 times as long, lost=7 does without device 7, and so without its model replica.
--plan simulates a plan that "epl plan --json" wrote.

--trace writes the timeline as EPL_TRACE would: "epl trace" draws it, and "epl trace diff" puts it beside a measured one. A file "-" is
standard output, in place of the text. docs/simulate.md is the guide.

` + usage.ExitCodes,
		Example: `  epl simulate --cluster 2x8xV100-32 -- go run ./examples/bert
  epl simulate --cluster 2x8xV100-32 --what-if bandwidth=2,straggler=3:1.5,lost=7 -- ./train
  epl simulate --devices 2 --trace predicted.json --html predicted.html -- go run ./examples/pipeline
  epl trace diff predicted.json measured.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("epl: which program? For example: epl simulate --cluster 1x4xV100-32 -- go run ./examples/pipeline")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			simulated := "-"
			if len(changes) > 0 {
				simulated = strings.Join(changes, ",")
				if _, err := simulate.ParseWhatIf(simulated); err != nil {
					return usage.Errorf("epl: --what-if: %s", strings.TrimPrefix(err.Error(), "epl: "))
				}
			}
			if err := files.check(); err != nil {
				return err
			}
			variables, err := asked.variables(cmd)
			if err != nil {
				return err
			}
			if file != "" {
				pinned, err := pinnedPlan(file, asked)
				if err != nil {
					return err
				}
				variables = append(variables, pinned...)
			}
			made, err := planOf(cmd, args, append(variables, "EPL_SIMULATE="+simulated), append(files.endings(), ".sim")...)
			if err != nil {
				return err
			}
			return files.write(cmd.OutOrStdout(), made, made[".sim"])
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command is its own
	asked.add(cmd)
	flags.StringVar(&file, "plan", "", "simulate the plan in a `file`, which epl plan --json wrote")
	flags.StringArrayVar(&changes, "what-if", nil, "also simulate with changes: `bandwidth=2,latency=0.5,straggler=3:1.5,lost=7`, each by itself and all together")
	files.add(cmd, "trace", ".sim.json", "write the timeline into a `file`, as EPL_TRACE would")
	files.add(cmd, "html", ".sim.html", "write the timeline as a page into a `file`")
	files.add(cmd, "svg", ".sim.svg", "draw the timeline in an SVG `file`")
	return cmd
}

// pinnedPlan are the variables that let a program use a plan, and describe its cluster if nothing else does.
func pinnedPlan(file string, asked planned) ([]string, error) {
	pl, err := plan.Read(file)
	if err != nil {
		return nil, err
	}
	if file, err = filepath.Abs(file); err != nil {
		return nil, errors.Wrap(err, "epl: --plan")
	}
	variables := []string{"EPL_PLAN_FILE=" + file}
	if asked.cluster != "" || asked.devices > 0 || asked.workers > 1 {
		return variables, nil // the program says whether that fits
	}
	var devices []string
	for _, w := range pl.Cluster.Workers {
		devices = append(devices, strconv.Itoa(len(w)))
	}
	return append(variables, described{devices: devices}.variables()...), nil
}
