// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/easyparallel/epl/internal/usage"
	"github.com/easyparallel/epl/trace"
)

// pictureWidth is that of a picture if nothing is said, in pixels.
const pictureWidth = 1440

// widest is wider than any terminal or picture has to be.
const widest = 20000

// newTraceCommand makes "epl trace".
func newTraceCommand() *cobra.Command {
	var out string
	var width, number int
	cmd := &cobra.Command{
		Use:   "trace FILE...",
		Short: "Show what the devices did in a step, and the bubble of its pipeline",
		Long: `Show the timeline that a training program wrote with EPL_TRACE=FILE: what each device did in a step, how long it was
busy and how long it waited; the bubble of the pipeline, measured and ideal, or the communication that computation does
not hide; and communication by kind, with bytes and GB/s. It is text, or with -o a picture. A file with several steps
(EPL_TRACE_STEPS) shows the last one, or that of --step.

In a job of several workers each writes a file. Given trace.json alone, those beside it, trace.worker1.json and so on,
are taken, too; given several files, only these.

` + usage.ExitCodes,
		Example: `  EPL_TRACE=trace.json go run .
  epl trace trace.json
  epl trace trace.json -o trace.html
  epl trace trace.json -o trace.svg --width 1600
  epl trace trace.json -o all.json   # all workers in one file, for Perfetto`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("epl: which timeline? Run the program with EPL_TRACE=trace.json, then: epl trace trace.json")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			picture, err := pictureOf(out)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("width") && (width < 1 || width > widest) {
				return usage.Errorf("epl: --width %d must be from 1 to %d", width, widest)
			}
			files := args
			if len(args) == 1 {
				files = append(files, besides(args[0])...)
				if len(files) > 1 {
					fmt.Fprintf(cmd.ErrOrStderr(), "epl: with the other workers' %s\n", strings.Join(files[1:], ", "))
				}
			}
			if cmd.Flags().Changed("step") && number < 1 {
				return errors.Errorf("epl: --step %d: the first step is 1", number)
			}
			step, err := readTraces(files, number)
			if err != nil {
				return err
			}
			if picture == nil {
				if width < 1 {
					width = terminalWidth()
				}
				return step.WriteText(cmd.OutOrStdout(), width)
			}
			if width < 1 {
				width = pictureWidth
			}
			var b bytes.Buffer
			if err := picture(step, &b, width); err != nil {
				return err
			}
			return errors.Wrap(os.WriteFile(out, b.Bytes(), 0o644), "epl: -o")
		},
	}
	cmd.AddCommand(newTraceDiffCommand())
	flags := cmd.Flags()
	flags.StringVarP(&out, "output", "o", "", "write a picture to `file`: .svg, .html for a page in which one can zoom, or .json for Perfetto")
	flags.IntVar(&number, "step", 0, "the `number` of the step to show, of a file with several (default: the last)")
	flags.IntVar(&width, "width", 0, "width in `columns` of text, or pixels of a picture (default: of the terminal; 1440)")
	return cmd
}

// pictureOf returns what writes the kind of picture that a file's name asks for; nil: none is asked for.
func pictureOf(out string) (func(s *trace.Step, b *bytes.Buffer, width int) error, error) {
	switch strings.ToLower(filepath.Ext(out)) {
	case ".svg":
		return func(s *trace.Step, b *bytes.Buffer, width int) error { return s.WriteSVG(b, width) }, nil
	case ".json":
		return func(s *trace.Step, b *bytes.Buffer, _ int) error { return s.WriteChrome(b) }, nil
	case ".html", ".htm":
		return func(s *trace.Step, b *bytes.Buffer, width int) error { return s.WriteHTML(b, width) }, nil
	}
	if out != "" {
		return nil, usage.Errorf("epl: -o %s: a picture is .svg, .html or .json", out)
	}
	return nil, nil
}

// besides returns the files that the other workers wrote beside the first one's, by worker.
func besides(file string) []string {
	ext := filepath.Ext(file)
	base := strings.TrimSuffix(filepath.Base(file), ext) + ".worker"
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		return nil // opening the file itself says what is wrong
	}
	byWorker := map[int]string{}
	var workers []int
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), base)
		if !ok || filepath.Ext(number) != ext {
			continue
		}
		if worker, err := strconv.Atoi(strings.TrimSuffix(number, ext)); err == nil {
			byWorker[worker] = filepath.Join(filepath.Dir(file), e.Name())
			workers = append(workers, worker)
		}
	}
	slices.Sort(workers)
	var files []string
	for _, w := range workers {
		files = append(files, byWorker[w])
	}
	return files
}

// readTraces reads the timelines of one step; 0: the last.
func readTraces(files []string, number int) (*trace.Step, error) {
	var steps []*trace.Step
	for _, file := range files {
		step, err := readTrace(file, number)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	if len(steps) == 1 {
		return steps[0], nil
	}
	step, err := trace.Join(steps...)
	return step, about(strings.Join(files, ", "), err)
}

// about names the files that an error is about.
func about(files string, err error) error {
	if err == nil {
		return nil
	}
	return errors.Errorf("epl: %s: %s", files, strings.TrimPrefix(err.Error(), "epl: "))
}

func readTrace(file string, number int) (*trace.Step, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, errors.Wrap(err, "epl: the timeline")
	}
	defer func() { _ = f.Close() }()
	steps, err := trace.ReadAll(f)
	if err != nil {
		return nil, about(file, err)
	}
	step := steps[len(steps)-1]
	if number > 0 {
		i := slices.IndexFunc(steps, func(s *trace.Step) bool { return s.Number == number })
		if i < 0 {
			return nil, errors.Errorf("epl: %s has the steps %d to %d, and not step %d", file, steps[0].Number, step.Number, number)
		}
		step = steps[i]
	}
	if len(step.Events()) == 0 {
		return nil, errors.Errorf("epl: %s has no events: the step that it shows did nothing", file)
	}
	return step, nil
}

// terminalWidth returns how wide the terminal is, if there is one.
func terminalWidth() int {
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w > 0 {
		return w
	}
	return 120
}
