// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/internal/usage"
	"github.com/easyparallel/epl/trace"
)

// newTraceDiffCommand makes "epl trace diff".
func newTraceDiffCommand() *cobra.Command {
	var out string
	var width, number int
	cmd := &cobra.Command{
		Use:   "diff PREDICTED MEASURED...",
		Short: "Compare a simulated step with one that ran",
		Long: `Put the timeline that "epl simulate --trace" predicted beside the one that the program wrote with EPL_TRACE: by kind of
task, wait and communication, and by device, with counts, times and their ratio; and both as one chart, or with -o as a picture.
Of a job of several workers give all files, or the first one's alone.

` + usage.ExitCodes,
		Example: `  epl simulate --trace predicted.json -- go run .
  EPL_TRACE=measured.json go run .
  epl trace diff predicted.json measured.json
  epl trace diff predicted.json measured.json -o both.html`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("epl: which timelines? For example: epl trace diff predicted.json measured.json")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			picture, err := pictureOf(out)
			if err != nil {
				return err
			}
			predicted, err := readTraces(args[:1], 0)
			if err != nil {
				return err
			}
			measured := args[1:]
			if len(measured) == 1 {
				measured = append(measured, besides(measured[0])...)
			}
			ran, err := readTraces(measured, number)
			if err != nil {
				return err
			}
			if ran.Predicted && !predicted.Predicted {
				return usage.Errorf("epl: %s is a prediction, and %s is measured: give the prediction first", measured[0], args[0])
			}
			c, err := trace.Compare(predicted, ran)
			if err != nil {
				return err
			}
			if picture == nil {
				if width < 1 {
					width = terminalWidth()
				}
				return c.WriteText(cmd.OutOrStdout(), width)
			}
			if width < 1 {
				width = pictureWidth
			}
			var b bytes.Buffer
			if err := picture(c.Both(), &b, width); err != nil {
				return err
			}
			return errors.Wrap(os.WriteFile(out, b.Bytes(), 0o644), "epl: -o")
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&out, "output", "o", "", "write a picture of both to `file`: .svg, .html, or .json for Perfetto")
	flags.IntVar(&number, "step", 0, "the `number` of the measured step, of a file with several (default: the last)")
	flags.IntVar(&width, "width", 0, "width in `columns` of text, or pixels of a picture (default: of the terminal; 1440)")
	return cmd
}
