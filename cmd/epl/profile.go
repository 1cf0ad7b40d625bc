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
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	epllib "github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/usage"
	"github.com/easyparallel/epl/trace"
)

// newProfileCommand makes "epl profile".
func newProfileCommand() *cobra.Command {
	var steps, out, device string
	cmd := &cobra.Command{
		Use:   "profile [flags] -- COMMAND [ARG]...",
		Short: "Say what slows a training program down, and what to change",
		Long: `Run a program until it has trained some steps, and say what should be changed to make them faster: the largest loss of time comes
first, in at most three sentences. Tables of where the time went follow: computation, data, communication that nothing hides, waiting
for other stages, and the time between steps; by stage and by kind of communication; where devices tell the times of ops, as CPUs do, also by line of the model, by TaskGraph and by op, with
what they reach of the roofline if "epl calibrate" has measured the machine.

The program is ended two seconds after the last of the steps, by SIGTERM. What it prints goes to standard error. -o writes a page with the
same and a timeline, the same for "go tool pprof", or the timeline of all steps as EPL_TRACE would, for Perfetto.
docs/profiling.md is the guide.

` + usage.ExitCodes,
		Example: `  epl profile -- go run ./examples/pipeline
  epl profile --steps 10:20 -o profile.html -- ./trainer
  epl profile -- epl-launch --num_workers 2 ./trainer`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("epl: which program? For example: epl profile -- go run ./examples/pipeline")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			which, err := trace.ParseRange(steps)
			if err != nil {
				return usage.Errorf("epl: --steps %v", err)
			}
			if out != "" {
				switch strings.ToLower(filepath.Ext(out)) {
				case ".html", ".htm", ".json", ".pprof":
				default:
					return usage.Errorf("epl: -o %s: a profile is .html, .pprof for go tool pprof, or .json for the timeline", out)
				}
				if err := checkPlace("-o", out); err != nil {
					return err
				}
			}
			roofline, err := deviceOf(device)
			if err != nil {
				return err
			}
			return profileOf(cmd, args, which, out, roofline)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command is its own
	flags.StringVar(&steps, "steps", "3:6", "the first and the last `step` to look at; the first ones of a program are slower than others")
	flags.StringVarP(&out, "output", "o", "", "write a page into a `file`: .html, .pprof for go tool pprof, or .json for the timeline of all steps")
	flags.StringVar(&device, "device", "", "the `profile` of the devices with whose roofline ops are compared (default: this, if epl calibrate has measured it)")
	return cmd
}

// deviceOf finds a profile of devices. Without a name it is that of this machine; nil: it has none.
func deviceOf(name string) (*cost.Profile, error) {
	if name != "" {
		return cost.Find(name)
	}
	dir, err := cost.Folder()
	if err != nil {
		return nil, nil
	}
	if _, err := os.Stat(filepath.Join(dir, cost.This+".json")); err != nil {
		return nil, nil
	}
	return cost.Find(cost.This)
}

// profileOf runs a program and prints the profile of its steps.
func profileOf(cmd *cobra.Command, args []string, which trace.Range, out string, device *cost.Profile) error {
	dir, err := os.MkdirTemp("", "epl-profile-")
	if err != nil {
		return errors.Wrap(err, "epl: no room for the timeline")
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "trace.json")
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM) // it does not get the terminal's
	defer stop()
	program := exec.CommandContext(ctx, args[0], args[1:]...)
	program.Env = append(os.Environ(), epllib.EnvTrace+"="+file, epllib.EnvTraceSteps+"="+which.String())
	program.Stdout, program.Stderr = cmd.ErrOrStderr(), cmd.ErrOrStderr()
	enough := false
	failed := runUntil(program, func() bool {
		enough = enough || lastStep(file) >= which.Last
		return enough
	})
	if ctx.Err() != nil {
		return errors.Errorf("epl: %s was interrupted before it had trained steps %s", args[0], which)
	}
	if _, err := os.Stat(file); err != nil {
		if failed != nil {
			return errors.Wrapf(failed, "epl: %s did not train step %d", args[0], which.First)
		}
		return errors.Errorf("epl: %s ended before it trained step %d: let it train more steps, or choose others by --steps; its optimizer has to be wrapped in epl.Optimizer, and its backend has to be EPL's",
			args[0], which.First)
	}
	var workers [][]*trace.Step
	for _, name := range append([]string{file}, besides(file)...) {
		steps, err := readSteps(name)
		if err != nil {
			return err
		}
		workers = append(workers, steps)
	}
	profile, err := trace.NewProfile(workers...)
	if err != nil {
		return err
	}
	if device != nil {
		threads := device.Threads(profile.Devices)
		profile.Against(func(flops, bytes float64) time.Duration { return device.Roofline(threads, flops, bytes) })
	}
	if err := profile.WriteText(cmd.OutOrStdout()); err != nil {
		return err
	}
	if out != "" {
		if err := writeProfile(out, profile, workers); err != nil {
			return err
		}
	}
	switch {
	case enough: // it was ended
		return nil
	case failed != nil:
		return errors.Wrapf(failed, "epl: the profile ends with step %d, since %s failed", profile.Last, args[0])
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "epl: the profile ends with step %d, and so did the program\n", profile.Last)
	return nil
}

// writeProfile writes the page, or the timeline of all steps.
func writeProfile(out string, profile *trace.Profile, workers [][]*trace.Step) error {
	var b bytes.Buffer
	if strings.ToLower(filepath.Ext(out)) == ".pprof" {
		if err := profile.WritePprof(&b); err != nil {
			return err
		}
		return errors.Wrap(os.WriteFile(out, b.Bytes(), 0o644), "epl: -o")
	}
	steps := joinSteps(workers)
	if len(steps) == 0 {
		return errors.New("epl: -o: the workers have no step in common, so that there is no timeline of it")
	}
	var err error
	if strings.ToLower(filepath.Ext(out)) == ".json" {
		err = trace.Write(&b, steps...)
	} else {
		err = profile.WriteHTML(&b, steps[len(steps)-1], pictureWidth)
	}
	if err != nil {
		return err
	}
	return errors.Wrap(os.WriteFile(out, b.Bytes(), 0o644), "epl: -o")
}

// joinSteps puts the steps of workers together. A step is left out that not all of them have, or whose clocks differ by too much.
func joinSteps(workers [][]*trace.Step) (joined []*trace.Step) {
	if len(workers) == 1 {
		return workers[0]
	}
	for _, first := range workers[0] {
		same := []*trace.Step{first}
		for _, others := range workers[1:] {
			for _, s := range others {
				if s.Number == first.Number {
					same = append(same, s)
				}
			}
		}
		if len(same) < len(workers) {
			continue
		}
		if step, err := trace.Join(same...); err == nil {
			joined = append(joined, step)
		}
	}
	return joined
}

// readSteps reads all steps of a file.
func readSteps(file string) ([]*trace.Step, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, errors.Wrap(err, "epl: the timeline")
	}
	defer func() { _ = f.Close() }()
	steps, err := trace.ReadAll(f)
	return steps, about(file, err)
}

var stepNumber = regexp.MustCompile(`"step": (\d+)`)

// lastStep returns the number of the last step in a file that is being written again and again; 0: it has none, or is not whole. It reads
// only the end, since the program is measured meanwhile.
func lastStep(file string) int {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	const enough = 4 << 10
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	end, err := io.ReadAll(io.NewSectionReader(f, max(info.Size()-enough, 0), enough))
	if err != nil || !bytes.HasSuffix(end, []byte("}\n")) {
		return 0
	}
	found := stepNumber.FindAllSubmatch(end, -1)
	if len(found) == 0 {
		return 0
	}
	number, err := strconv.Atoi(string(found[len(found)-1][1]))
	if err != nil {
		return 0
	}
	return number
}
