// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/easyparallel/epl/internal/version"
)

// newVersionCommand makes "epl version".
func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of EPL, of Go and of GoMLX",
		Long:    "Print the version of EPL, of Go and of the modules of GoMLX that this command was built with. Name them in reports of defects.",
		Example: "  epl version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var w strings.Builder
			fmt.Fprintf(&w, "epl %s\n%s %s/%s\n", version.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, m := range info.Deps {
					if strings.HasPrefix(m.Path, "github.com/gomlx/") {
						fmt.Fprintf(&w, "%s %s\n", m.Path, m.Version)
					}
				}
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), w.String())
			return err
		},
	}
}
