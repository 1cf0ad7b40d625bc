// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package drill

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Report writes a table of what came of drills, and what is wrong. It tells whether all is as it should be.
func Report(w io.Writer, all []Result) (right bool, err error) {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "drill\tfault\tnoticed\tjob\tweights\t")
	wrong := 0
	for _, r := range all {
		noticed, verdict, weights := "-", "ok", "-"
		if r.Noticed >= 0 {
			noticed = fmt.Sprintf("%.2f s", r.Noticed.Seconds())
		}
		if r.Weights == "equal" {
			weights = r.Weights
		} else if r.Weights != "" {
			weights = "differ"
		}
		if len(r.Wrong) > 0 {
			wrong++
			verdict = "WRONG"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Fault, noticed, r.Outcome, weights, verdict)
	}
	if err := table.Flush(); err != nil {
		return false, err
	}
	for _, r := range all {
		for _, what := range r.Wrong {
			fmt.Fprintf(w, "%s: %s\n", r.Name, what)
		}
		if len(r.Wrong) > 0 {
			fmt.Fprintf(w, "%s: its output is in %s\n", r.Name, r.Output)
		}
	}
	_, err = fmt.Fprintf(w, "%d of %d drills as they should be\n", len(all)-wrong, len(all))
	return wrong == 0, err
}
