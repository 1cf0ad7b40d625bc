// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/support/humanize"
	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/cost/calibrate"
	"github.com/easyparallel/epl/internal/usage"
)

// newCalibrateCommand makes "epl calibrate".
func newCalibrateCommand() *cobra.Command {
	var out string
	var o calibrate.Options
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure this machine, for predictions",
		Long: `Measure this machine in less than a minute, and write its profile: how fast devices compute products, convolutions and elementwise ops by size and type,
with one core and with more, the bandwidth of memory, what it takes to start an op and a segment, and what each transport takes between two devices.

Programs and "epl plan" find the profile as "this". Run it while the machine does nothing else. docs/profiles.md is the guide.

` + usage.ExitCodes,
		Example: `  epl calibrate
  epl calibrate --out laptop.json --transports in-process`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range o.Transports {
				if !slices.Contains(calibrate.Transports, name) {
					return usage.Errorf("epl: --transports %s: use %s", name, strings.Join(calibrate.Transports, ", "))
				}
			}
			if kind, _, _ := strings.Cut(o.Inner, ":"); kind != "cpu" && !slices.Contains(compute.List(), kind) {
				return usage.Errorf("epl: --inner %s: there is no such backend; use cpu, or one of GoMLX: %s", o.Inner, strings.Join(compute.List(), ", "))
			}
			if o.Each <= 0 {
				return usage.Errorf("epl: --each %s: a measurement takes some time, such as %s", o.Each, calibrate.Usual)
			}
			if out == "" {
				dir, err := cost.Folder()
				if err != nil {
					return err
				}
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return errors.Wrap(err, "epl: --out")
				}
				out = filepath.Join(dir, cost.This+".json")
			}
			if err := checkPlace("--out", out); err != nil {
				return err
			}
			o.Progress = func(what string) { fmt.Fprintf(cmd.ErrOrStderr(), "%s %s\n", time.Now().Format("15:04:05"), what) }
			p, err := calibrate.Machine(o)
			if err != nil {
				return err
			}
			text, err := json.MarshalIndent(p, "", "\t")
			if err != nil {
				return errors.WithStack(err)
			}
			if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil {
				return errors.Wrap(err, "epl: --out")
			}
			printProfile(cmd.OutOrStdout(), p)
			fmt.Fprintf(cmd.OutOrStdout(), "\nwritten to %s\n", out)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&out, "out", "", "write the profile into a `file` (default: this.json in the folder of profiles)")
	flags.StringSliceVar(&o.Transports, "transports", nil, "only these `transports`: "+strings.Join(calibrate.Transports, ", "))
	flags.StringVar(&o.Inner, "inner", "cpu", "the `backend` that devices run programs on")
	flags.DurationVar(&o.Each, "each", calibrate.Usual, "how long each measurement takes")
	return cmd
}

// printProfile prints a profile as a table.
func printProfile(to io.Writer, p *cost.Profile) {
	fmt.Fprintf(to, "%s\n%d cores, %s of memory\n\n", p.Source, p.Cores, humanize.Bytes(p.Memory))
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "cores of a device\twhat\tby size")
	for _, threads := range append([]int{1}, slices.Sorted(maps.Keys(p.Teams))...) {
		q, _ := p.On(threads)
		fmt.Fprintf(w, "%d\tlaunch, segment\t%v, %v\n", threads, q.Launch, q.Segment)
		for _, key := range slices.Sorted(maps.Keys(q.Rates)) {
			var points []string
			for _, x := range q.Rates[key] {
				unit := "FLOP/s"
				switch key {
				case cost.Memory, cost.Pack:
					unit = "B/s"
				case cost.Rows:
					unit = " rows/s"
				}
				points = append(points, fmt.Sprintf("%s: %s%s", metric(x.Size), metric(x.PerSecond), unit))
			}
			fmt.Fprintf(w, "%d\t%s\t%s\n", threads, key, strings.Join(points, "  "))
		}
	}
	_ = w.Flush()
	fmt.Fprintln(to)
	w = tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "link\tlatency\tbandwidth")
	for _, x := range []struct {
		name string
		link *cost.Link
	}{{"devices of a worker (in-process)", p.Within}, {"workers of a host (shared memory)", p.Inside}, {"hosts (TCP, here its loopback)", p.Between}} {
		if x.link != nil {
			fmt.Fprintf(w, "%s\t%v\t%sB/s\n", x.name, x.link.Latency, metric(x.link.Bandwidth))
		}
	}
	_ = w.Flush()
}

// metric writes a number with three digits: 2.1G.
func metric(x float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= u.size {
			return fmt.Sprintf("%.3g%s", x/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.3g", x)
}
