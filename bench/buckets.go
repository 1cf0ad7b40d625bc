// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
)

// bucketRows compare the number of buckets that EPL chooses with others. It chooses on machines that were calibrated; on others it is the default.
func bucketRows() (rows []Row) {
	const workers = 2
	for _, x := range []struct {
		model string
		batch int
	}{{"gpt-64", 8}, {"gpt-256", 8}, {"mlp-25M", 64}} {
		training := func(s settings) func() (side, error) {
			return func() (side, error) {
				return steps(ourTraining(workers, x.model, x.batch, trainPath, s.environment()...))
			}
		}
		row := Row{Name: fmt.Sprintf("buckets/%s/%d", x.model, x.batch), Pairs: 15, Warm: 2, Ours: training(nil)}
		for _, n := range []int{1, 2, 5, 20} {
			splits := settings{"communication.max_splits": strconv.Itoa(n)}
			row.Also = append(row.Also, Peer{Name: "EPL, " + splits.environment()[0], Make: training(splits)})
		}
		row.Peer, row.Theirs, row.Also = row.Also[0].Name, row.Also[0].Make, row.Also[1:]
		rows = append(rows, row)
	}
	return rows
}
