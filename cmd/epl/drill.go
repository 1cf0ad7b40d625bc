// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/drill"
	"github.com/easyparallel/epl/launch"
)

// guardCommand is what the launcher of drills starts this program by, to end workers whose launcher was killed.
const guardCommand = "drill-guard"

// newDrillCommand makes "epl drill".
func newDrillCommand() *cobra.Command {
	o := drill.Options{Workers: 2}
	cmd := &cobra.Command{
		Use:   "drill [flags] -- command [arguments]",
		Short: "Let things go wrong while a program trains, and see what comes of it",
		Long: `Run a training program again and again on workers of this machine, while something goes wrong on purpose: a worker is killed, also while it saves, or stopped, a connection
breaks or changes a bit, a worker is slow, a disk is full. The program runs undisturbed at first.

If a word of the command has {dir}, it stands for a folder that each run has for itself, for checkpoints of env.Checkpoints: workers are started anew when one is lost,
and the last checkpoint must be that of the undisturbed run, bit for bit. Without {dir} the job must end with an error. It must name the worker, its machine and what it was
doing, and come soon. docs/drills.md is the guide.

Exit codes: 0 all is as it should be, 1 it is not, 2 wrong usage.`,
		Example: `  go build -o trainer ./examples/elastic
  epl drill -- ./trainer -dir {dir} -steps 40 -pause 20ms
  epl drill --workers 4 --only kill -- ./trainer -dir {dir}`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			switch {
			case o.Workers < 1:
				return errors.Errorf("epl: --workers %d: expected a number of at least 1", o.Workers)
			case o.Devices < 0:
				return errors.Errorf("epl: --devices %d: expected a number of at least 1", o.Devices)
			case o.Limit <= 0 || o.Notice <= 0:
				return errors.New("epl: --limit and --notice are durations above 0, such as 5s")
			}
			if o.Folder == "" {
				if o.Folder, err = os.MkdirTemp("", "epl-drill-"); err != nil {
					return err
				}
			} else if err := os.MkdirAll(o.Folder, 0o777); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Command, o.Self, o.Progress = args, []string{self, guardCommand}, cmd.ErrOrStderr()
			all, err := drill.Run(ctx, o)
			if err != nil {
				return err
			}
			right, err := drill.Report(cmd.OutOrStdout(), all)
			if err == nil && !right {
				err = errors.New("epl: some drills are not as they should be")
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command is the command's
	flags.IntVar(&o.Workers, "workers", o.Workers, "workers of the job, on this machine")
	flags.IntVar(&o.Devices, "devices", 0, "devices of each worker (default: as the program says, which then must be 1)")
	flags.StringSliceVar(&o.Only, "only", nil, "drills to run, by words of their names, such as kill,disk (default all)")
	flags.DurationVar(&o.Notice, "notice", 5*time.Second, "how soon a fault must be noticed")
	flags.DurationVar(&o.Limit, "limit", 10*time.Minute, "how long a run may take")
	flags.StringVar(&o.Folder, "folder", "", "folder for outputs and checkpoints of all runs (default: a new one)")
	return cmd
}

// newGuardCommand makes what the launcher of drills needs.
func newGuardCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    guardCommand,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			guard, err := cmd.Flags().GetBool("guard")
			if err != nil || !guard {
				return fmt.Errorf("epl: %s is for epl drill itself", guardCommand)
			}
			launch.Guard(cmd.InOrStdin())
			return nil
		},
	}
	cmd.Flags().Bool("guard", false, "end the workers of a launcher that was killed")
	return cmd
}
