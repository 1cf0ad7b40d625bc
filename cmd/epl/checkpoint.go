// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gomlx/compute/support/humanize"
	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/checkpoint/convert"
	"github.com/easyparallel/epl/internal/usage"
	"github.com/easyparallel/epl/state"
)

// newCheckpointCommand makes "epl checkpoint".
func newCheckpointCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Look at checkpoints, verify, compare, convert and remove them",
		Long: `Look at the checkpoints that env.Checkpoints saved, verify, compare, convert and remove them. Where a CHECKPOINT is asked for,
give its folder, or the folder of checkpoints, which stands for the newest in it.

` + usage.ExitCodes,
		Example: `  epl checkpoint list run1
  epl checkpoint verify run1
  epl checkpoint export run1 model.safetensors --names names.json`,
	}
	cmd.AddCommand(newCheckpointList(), newCheckpointShow(), newCheckpointVerify(), newCheckpointDiff(), newCheckpointExport(), newCheckpointImport(), newCheckpointPrune())
	return cmd
}

// checkpointCommand is a subcommand that takes so many arguments.
func checkpointCommand(use, short, long, example string, args int, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long + "\n\n" + usage.ExitCodes, Example: example,
		Args: func(_ *cobra.Command, given []string) error {
			if len(given) != args {
				return errors.Errorf("epl: %d arguments are given; say: epl checkpoint %s", len(given), use)
			}
			return nil
		},
		RunE: run,
	}
}

// findCheckpoint is the folder of a checkpoint: the one given, or the newest in it.
func findCheckpoint(path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", errors.Wrap(err, "epl: checkpoint")
	}
	if names, err := checkpoint.OS.List(path); err == nil {
		for _, name := range names {
			if name == checkpoint.ManifestName {
				return path, nil
			}
		}
	}
	all, _, damaged, err := checkpoint.List(checkpoint.OS, path)
	switch {
	case err != nil:
		return "", err
	case len(all) > 0:
		return filepath.Join(path, all[len(all)-1].Name), nil
	case len(damaged) > 0:
		return "", damaged[len(damaged)-1]
	}
	return "", errors.Errorf("epl: there is no checkpoint in %s", path)
}

// openCheckpoint opens what an argument stands for.
func openCheckpoint(path string) (*checkpoint.Checkpoint, error) {
	folder, err := findCheckpoint(path)
	if err != nil {
		return nil, err
	}
	return checkpoint.Open(checkpoint.OS, folder)
}

// columns prints a table.
func columns(cmd *cobra.Command, fill func(row func(cells ...any))) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fill(func(cells ...any) { fmt.Fprintln(w, strings.TrimSuffix(strings.Join(texts(cells), "\t"), "\t")) })
	return w.Flush()
}

func texts(cells []any) (all []string) {
	for _, c := range cells {
		all = append(all, fmt.Sprint(c))
	}
	return all
}

func newCheckpointList() *cobra.Command {
	return checkpointCommand("list DIR", "List the checkpoints of a folder, the oldest first",
		`List the checkpoints of a folder, the oldest first: step, time, size, and what wrote them. Damaged ones are named. Data are not read:
"epl checkpoint verify" does that.`, "  epl checkpoint list run1", 1,
		func(cmd *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return errors.Wrap(err, "epl: checkpoints")
			}
			all, _, damaged, err := checkpoint.List(checkpoint.OS, args[0])
			if err != nil {
				return err
			}
			if len(all) == 0 && len(damaged) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "there is no checkpoint in %s\n", args[0])
				return nil
			}
			err = columns(cmd, func(row func(...any)) {
				row("checkpoint", "step", "time", "variables", "size", "workers", "devices", "metrics")
				for _, c := range all {
					m := c.Manifest
					row(c.Name, m.Step, m.Time.Format(time.RFC3339), m.Variables, humanize.Bytes(m.Bytes), m.Workers, m.Devices, metricsOf(m))
				}
			})
			for _, d := range damaged {
				fmt.Fprintf(cmd.OutOrStdout(), "damaged: %s\n", strings.TrimPrefix(d.Error(), "epl: "))
			}
			return err
		})
}

func newCheckpointShow() *cobra.Command {
	var asJSON, plan bool
	cmd := checkpointCommand("show CHECKPOINT", "Show what is in a checkpoint",
		"Show what is in a checkpoint: step, versions, hyperparameters, and every variable with the files that have pieces of it.",
		"  epl checkpoint show run1\n  epl checkpoint show run1/n0000007-step-00001200 --plan > plan.json", 1,
		func(cmd *cobra.Command, args []string) error {
			c, err := openCheckpoint(args[0])
			if err != nil {
				return err
			}
			defer c.Close()
			m := c.Manifest
			if plan {
				if m.Plan == nil {
					return errors.Errorf("epl: checkpoint %s has no plan: no training program was compiled when it was saved", c.Folder)
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", m.Plan)
				return err
			}
			if asJSON {
				text, err := json.MarshalIndent(m, "", "  ")
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
				}
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\nstep %d, %s, by EPL %s, GoMLX %s and %s, on %d workers with %d devices\n\n",
				c.Folder, m.Step, m.Time.Format(time.RFC3339), m.EPL, orUnknown(m.GoMLX), m.Go, m.Workers, m.Devices)
			err = columns(cmd, func(row func(...any)) {
				row("variable", "shape", "size", "pieces", "files")
				for _, path := range c.Paths() {
					shape, _ := c.Shape(path)
					regions, files := c.Pieces(path)
					seen := map[string]bool{}
					for _, f := range files {
						seen[f] = true
					}
					row(path, shape, humanize.Bytes(int64(state.Bytes(shape.DType, shape.Size()))), len(regions), len(seen))
				}
			})
			if len(m.Params) > 0 && err == nil {
				fmt.Fprintln(cmd.OutOrStdout())
				err = columns(cmd, func(row func(...any)) {
					row("hyperparameter", "value")
					for _, p := range m.Params {
						row(filepath.Join("/", p.Scope, p.Key), string(bytes.TrimSpace(p.Value)))
					}
				})
			}
			return err
		})
	cmd.Flags().BoolVar(&asJSON, "json", false, "the manifest as JSON")
	cmd.Flags().BoolVar(&plan, "plan", false, "only the plan, as JSON: --plan of epl-launch takes it")
	return cmd
}

func orUnknown(s string) string {
	if s == "" {
		return "(unknown)"
	}
	return s
}

func newCheckpointVerify() *cobra.Command {
	return checkpointCommand("verify CHECKPOINT|DIR", "Read checkpoints, and verify their checksums",
		"Read all of a checkpoint, or of all checkpoints of a folder, and verify checksums. It fails if one is damaged.", "  epl checkpoint verify run1", 1,
		func(cmd *cobra.Command, args []string) error {
			folder, err := findCheckpoint(args[0])
			if err != nil {
				return err
			}
			folders := []string{folder}
			bad := 0
			if folder != args[0] {
				all, _, damaged, err := checkpoint.List(checkpoint.OS, args[0])
				if err != nil {
					return err
				}
				folders = nil
				for _, c := range all {
					folders = append(folders, filepath.Join(args[0], c.Name))
				}
				for _, d := range damaged {
					bad++
					fmt.Fprintln(cmd.OutOrStdout(), strings.TrimPrefix(d.Error(), "epl: "))
				}
			}
			for _, folder := range folders {
				c, err := checkpoint.Open(checkpoint.OS, folder)
				if err == nil {
					err = c.Verify(0, 1)
					c.Close()
				}
				if err != nil {
					bad++
					fmt.Fprintln(cmd.OutOrStdout(), strings.TrimPrefix(err.Error(), "epl: "))
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "checkpoint %s: fine, %d variables, %s\n", folder, c.Manifest.Variables, humanize.Bytes(c.Manifest.Bytes))
			}
			if bad > 0 {
				return errors.Errorf("epl: %d of %d checkpoints are damaged", bad, len(folders)+bad)
			}
			return nil
		})
}

func newCheckpointDiff() *cobra.Command {
	return checkpointCommand("diff CHECKPOINT CHECKPOINT", "Say what differs between two checkpoints",
		"Compare two checkpoints: variables that only one has, and of the others how many elements differ, and by how much at most.",
		"  epl checkpoint diff run1/n0000006-step-00001100 run1", 2,
		func(cmd *cobra.Command, args []string) error {
			var both [2]*checkpoint.Checkpoint
			for i, arg := range args {
				c, err := openCheckpoint(arg)
				if err != nil {
					return err
				}
				defer c.Close()
				both[i] = c
			}
			all, err := checkpoint.Compare(both[0], both[1])
			if err != nil {
				return err
			}
			if len(all) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "the variables are the same; steps %d and %d\n", both[0].Manifest.Step, both[1].Manifest.Step)
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "steps %d and %d\n", both[0].Manifest.Step, both[1].Manifest.Step)
			return columns(cmd, func(row func(...any)) {
				row("variable", "elements that differ", "at most by")
				for _, d := range all {
					switch {
					case d.Text != "":
						row(d.Path, d.Text, "")
					case math.IsNaN(d.Most):
						row(d.Path, fmt.Sprintf("%d of %d", d.Elements, d.Of), "")
					default:
						row(d.Path, fmt.Sprintf("%d of %d", d.Elements, d.Of), fmt.Sprintf("%.3g", d.Most))
					}
				}
			})
		})
}

// The formats that checkpoints are converted to and from.
const (
	formatSafetensors = "safetensors"
	formatGoMLX       = "gomlx"
)

// formatOf is the format that is asked for, or that a name stands for.
func formatOf(format, path string) (string, error) {
	switch {
	case format == formatSafetensors || format == formatGoMLX:
		return format, nil
	case format != "":
		return "", usage.Errorf("epl: --format %s must be %s or %s", format, formatSafetensors, formatGoMLX)
	case filepath.Ext(path) == ".safetensors":
		return formatSafetensors, nil
	}
	return formatGoMLX, nil
}

// namesOf reads the file of names.
func namesOf(file, format string) (convert.Names, error) {
	if file == "" {
		return nil, nil
	}
	if format == formatGoMLX {
		return nil, usage.Errorf("epl: --names is for safetensors files: in GoMLX's format variables have their paths")
	}
	return convert.ReadNames(file)
}

const namesHelp = "a JSON `file` with the name of the tensor for each path of a variable; others are left out"

func newCheckpointExport() *cobra.Command {
	var format, names string
	cmd := checkpointCommand("export CHECKPOINT TO", "Write a checkpoint as one safetensors file, or in GoMLX's format",
		`Write a checkpoint as one safetensors file, with names of your choice, or in GoMLX's format, into a folder from which GoMLX's handler
loads it. A name that ends in .safetensors is such a file, others are folders, unless --format says otherwise.`,
		"  epl checkpoint export run1 model.safetensors --names names.json\n  epl checkpoint export run1 gomlx-model", 2,
		func(cmd *cobra.Command, args []string) error {
			format, err := formatOf(format, args[1])
			if err != nil {
				return err
			}
			n, err := namesOf(names, format)
			if err != nil {
				return err
			}
			c, err := openCheckpoint(args[0])
			if err != nil {
				return err
			}
			defer c.Close()
			if format == formatGoMLX {
				return convert.ToGoMLX(c, args[1])
			}
			return convert.ToSafetensors(c, checkpoint.OS, args[1], n)
		})
	cmd.Flags().StringVar(&format, "format", "", "safetensors or gomlx")
	cmd.Flags().StringVar(&names, "names", "", namesHelp)
	return cmd
}

func newCheckpointImport() *cobra.Command {
	var format, names string
	cmd := checkpointCommand("import FROM DIR", "Make a checkpoint of a safetensors file, or of GoMLX's newest",
		`Make a checkpoint, in a folder of them, of a safetensors file or of the newest in a folder of GoMLX's checkpoints. A name that ends in
.safetensors is such a file, others are folders, unless --format says otherwise.`,
		"  epl checkpoint import model.safetensors run2 --names names.json\n  epl checkpoint import gomlx-model run2", 2,
		func(cmd *cobra.Command, args []string) error {
			format, err := formatOf(format, args[0])
			if err != nil {
				return err
			}
			n, err := namesOf(names, format)
			if err != nil {
				return err
			}
			var name string
			if format == formatGoMLX {
				name, err = convert.FromGoMLX(checkpoint.OS, args[0], args[1])
			} else {
				name, err = convert.FromSafetensors(checkpoint.OS, args[0], args[1], n)
			}
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(args[1], name))
			}
			return err
		})
	cmd.Flags().StringVar(&format, "format", "", "safetensors or gomlx")
	cmd.Flags().StringVar(&names, "names", "", namesHelp)
	return cmd
}

func newCheckpointPrune() *cobra.Command {
	var keep int
	var lowest, highest []string
	cmd := checkpointCommand("prune DIR", "Remove old checkpoints",
		`Remove all checkpoints of a folder but for the newest and the best, and what is left of saves that were never finished. Damaged checkpoints stay. Do not run it
while a job saves there.`, "  epl checkpoint prune run1 --keep 2\n  epl checkpoint prune run1 --lowest loss", 1,
		func(cmd *cobra.Command, args []string) error {
			if keep < 1 {
				return usage.Errorf("epl: --keep %d must be at least 1", keep)
			}
			if _, err := os.Stat(args[0]); err != nil {
				return errors.Wrap(err, "epl: checkpoints")
			}
			var best []checkpoint.Best
			for _, metric := range lowest {
				best = append(best, checkpoint.Best{Metric: metric, N: 1})
			}
			for _, metric := range highest {
				best = append(best, checkpoint.Best{Metric: metric, N: 1, Highest: true})
			}
			if err := checkMetrics(args[0], slices.Concat(lowest, highest)); err != nil {
				return err
			}
			removed, err := checkpoint.Prune(checkpoint.OS, args[0], keep, best...)
			for _, name := range removed {
				fmt.Fprintln(cmd.OutOrStdout(), "removed", filepath.Join(args[0], name))
			}
			return err
		})
	cmd.Flags().IntVar(&keep, "keep", 1, "how many of the newest stay")
	cmd.Flags().StringArrayVar(&lowest, "lowest", nil, "the one with the lowest value of this `metric` stays, too; may be given several times")
	cmd.Flags().StringArrayVar(&highest, "highest", nil, "the one with the highest value of this `metric` stays, too; may be given several times")
	return cmd
}

// checkMetrics refuses metrics that no checkpoint of a folder has: all but the newest would go.
func checkMetrics(dir string, names []string) error {
	all, _, _, err := checkpoint.List(checkpoint.OS, dir)
	if err != nil {
		return err
	}
	known := map[string]float64{}
	for _, c := range all {
		maps.Copy(known, c.Manifest.Metrics)
	}
	for _, name := range names {
		if _, ok := known[name]; !ok {
			return errors.Errorf("epl: no checkpoint in %s has the metric %q; they have %q", dir, name, slices.Sorted(maps.Keys(known)))
		}
	}
	return nil
}

// metricsOf are the metrics of a checkpoint as text.
func metricsOf(m *checkpoint.Manifest) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m.Metrics)) {
		all = append(all, fmt.Sprintf("%s %.6g", name, m.Metrics[name]))
	}
	return strings.Join(all, ", ")
}
