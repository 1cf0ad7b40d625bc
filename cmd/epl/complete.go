// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/config"
)

// completeKeys offers the configuration keys for an argument that is one.
func completeKeys(_ *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var all []cobra.Completion
	for _, e := range new(config.Config).Entries() {
		if strings.HasPrefix(e.Key, start) {
			all = append(all, cobra.CompletionWithDesc(e.Key, e.Doc))
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// quoted matches a value in the text about what a key allows.
var quoted = regexp.MustCompile(`"([^"]*)"`)

// completeSettings offers keys for key=value, and then the values of a key that has few.
func completeSettings(cmd *cobra.Command, _ []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	key, value, hasValue := strings.Cut(start, "=")
	if !hasValue {
		keys, _ := completeKeys(cmd, nil, key)
		for i, k := range keys {
			name, doc, _ := strings.Cut(k, "\t")
			keys[i] = cobra.CompletionWithDesc(name+"=", doc)
		}
		return keys, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	e, err := new(config.Config).Entry(key)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	values := []string{"true", "false"}
	if e.Type != "bool" {
		values = nil
		for _, m := range quoted.FindAllStringSubmatch(e.Allowed, -1) {
			if m[1] != "" {
				values = append(values, m[1])
			}
		}
	}
	var all []cobra.Completion
	for _, v := range values {
		if strings.HasPrefix(strings.ToLower(v), strings.ToLower(value)) {
			all = append(all, key+"="+v)
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}
