// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/internal/usage"
)

// newConfigCommand makes "epl config".
func newConfigCommand() *cobra.Command {
	var settings []string
	var asJSON, changed bool
	cmd := &cobra.Command{
		Use:   "config [key]",
		Short: "List the configuration keys, their values and where each came from",
		Long: `List every configuration key with its type, its default, its present value and where that came from: code
(here --set), else the environment variable EPL_<CATEGORY>_<ATTRIBUTE>, else the default. With a key: explain that one.

It also checks an environment before a job starts. Exit codes: 0 fine, 1 a variable of the environment is wrong, 2 wrong usage:
a flag, a key or a value of the command line.`,
		Example: `  epl config --changed
  EPL_AMP_LEVEL=O1 epl config amp.level
  epl config --set pipeline.num_micro_batch=4 --json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			if changed && len(args) == 1 {
				return usage.Errorf("epl: --changed is for the whole list; leave it out, or leave out %s", args[0])
			}
			params, err := parseSettings(settings)
			if err != nil {
				return err
			}
			cfg, err := config.New(params)
			if err != nil {
				if _, alone := config.New(nil); alone == nil { // then it is --set
					return usage.Of(err)
				}
				return err
			}
			entries := cfg.Entries()
			if len(args) == 1 {
				entry, err := cfg.Entry(args[0])
				if err != nil {
					return usage.Of(err)
				}
				if !asJSON {
					return explainEntry(cmd.OutOrStdout(), entry)
				}
				entries = []config.Entry{entry}
			}
			if changed {
				entries = slices.DeleteFunc(entries, func(e config.Entry) bool { return !e.Changed() })
			}
			if asJSON {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(entries)
			}
			return listEntries(cmd.OutOrStdout(), entries)
		},
	}
	flags := cmd.Flags()
	// An array and not a slice: lists of devices contain commas.
	flags.StringArrayVar(&settings, "set", nil, "set a `key=value` as code would; may be repeated")
	flags.BoolVar(&asJSON, "json", false, "print JSON: a list of objects")
	flags.BoolVar(&changed, "changed", false, "list only keys whose value is not the default")
	_ = cmd.RegisterFlagCompletionFunc("set", completeSettings) // the flag is there
	return cmd
}

// parseSettings turns the values of --set into what a program would pass to config.New.
func parseSettings(settings []string) (map[string]any, error) {
	params := make(map[string]any, len(settings))
	for _, setting := range settings {
		key, value, ok := strings.Cut(setting, "=")
		if !ok {
			return nil, usage.Errorf("epl: --set %q has no value; write --set key=value", setting)
		}
		if _, twice := params[key]; twice {
			return nil, usage.Errorf("epl: --set gives %s twice; keep one of them", key)
		}
		params[key] = value
	}
	return params, nil
}

// listEntries writes an aligned table.
func listEntries(out io.Writer, entries []config.Entry) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tTYPE\tDEFAULT\tVALUE\tSOURCE")
	for _, e := range entries {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.Key, e.Type, visible(e.Default), visible(e.Value), e.Source)
	}
	return w.Flush() // it keeps the first error of the writes above
}

// explainEntry writes all that is known about one key.
func explainEntry(out io.Writer, e config.Entry) error {
	inOriginal := "yes"
	if !e.Original {
		inOriginal = "no"
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\n\n%s\n\n", e.Key, e.Doc)
	fmt.Fprintf(w, "type\t%s\n", e.Type)
	fmt.Fprintf(w, "allowed\t%s\n", e.Allowed)
	fmt.Fprintf(w, "default\t%s\n", visible(e.Default))
	fmt.Fprintf(w, "value\t%s (from %s)\n", visible(e.Value), e.Source)
	fmt.Fprintf(w, "variable\t%s\n", e.Variable)
	fmt.Fprintf(w, "in original EPL\t%s\n", inOriginal)
	return w.Flush()
}

// visible quotes a text that would not be seen in a column.
func visible(text string) string {
	if text == "" {
		return `""`
	}
	return text
}
