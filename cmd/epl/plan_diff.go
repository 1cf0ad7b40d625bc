// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/internal/usage"
	"github.com/easyparallel/epl/plan"
)

// newPlanDiffCommand makes "epl plan diff".
func newPlanDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff A.json B.json",
		Short: "Say what differs between two plans, and what it costs",
		Long: `Compare two plans that "epl plan --json" wrote: every decision that differs, and what memory, arithmetic and traffic of a
step become.

` + usage.ExitCodes,
		Example: `  epl plan --devices 8 --json a.json -- ./train
  epl plan --devices 8 --set offload.level=v0 --json b.json -- ./train
  epl plan diff a.json b.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("epl: which plans? For example: epl plan diff a.json b.json")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := plan.Read(args[0])
			if err != nil {
				return err
			}
			b, err := plan.Read(args[1])
			if err != nil {
				return err
			}
			text := plan.Diff(a, b)
			if text == "" {
				text = "the plans are the same\n"
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
}
