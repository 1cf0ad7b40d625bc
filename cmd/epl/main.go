// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command epl looks at what EPL would do: its configuration, plans and records. Only its drills and profiles train.
//
//	epl config                              every configuration key, its value and where the value came from
//	epl config --changed                    only the keys that are not at their default
//	epl config --set amp.level=O1 --json    with values as code would set them, for other programs to read
//	epl config pipeline.strategy            one key explained
//	epl plan --devices 8 -- go run .        what it would do with a program on 8 devices, and the memory that takes
//	epl plan diff a.json b.json             what differs between two plans, and what it costs
//	epl calibrate                           what this machine can do, as a profile for predictions
//	epl simulate --cluster 2x8xV100-32 -- . how long a step would take there
//	epl trace trace.json -o trace.html      what the devices did in a step, as a picture
//	epl trace diff a.json trace.json        what was predicted of a step, beside what ran
//	epl profile --steps 3:6 -- ./trainer    what slows a program down, and what to change
//	epl checkpoint list run1                the checkpoints of a folder; also show, verify, diff, export, import and prune
//	epl doctor                              what this machine, or with --hosts a job, lacks, and what mends it
//	epl new mytrainer                       a training program to start from
//	epl drill -- ./train -dir {dir}         what happens when workers, connections and disks fail while a program trains
//	epl version                             of EPL, Go and GoMLX
//
// Exit codes: 0 fine, 1 it failed, 2 wrong usage.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/internal/usage"
	"github.com/easyparallel/epl/internal/version"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return usage.Run(root, stderr)
}

// newRootCommand lists the subcommands; each has a file of its own.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "epl",
		Short: "Look at what Easy Parallel Library would do with a training program",
		Long: `Look at what Easy Parallel Library would do with a training program, and at what it did. Only "epl drill" and "epl profile" train.

` + usage.ExitCodes + ` "epl completion --help" says how a shell completes commands, flags and keys.`,
		Example: `  epl plan --devices 8 -- go run ./examples/bert      what EPL would do on 8 devices, and the memory that takes
  epl config --changed                                which settings are not at their default, and who set them
  epl trace trace.json -o trace.html                  what the devices did in a step`,
		Version:       version.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("epl {{.Version}}\n")
	root.AddCommand(
		newCalibrateCommand(),
		newCheckpointCommand(),
		newConfigCommand(),
		newDoctorCommand(),
		newDoctorAgentCommand(),
		newDrillCommand(),
		newGuardCommand(),
		newNewCommand(),
		newPlanCommand(),
		newProfileCommand(),
		newSimulateCommand(),
		newTraceCommand(),
		newVersionCommand(),
	)
	return root
}
