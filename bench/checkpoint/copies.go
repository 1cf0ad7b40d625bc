// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/easyparallel/epl/launch"
)

// copies runs this command as the workers of an elastic job, which measure what copies in memory cost.
func (j job) copies() error {
	status, err := launch.Run(context.Background(), launch.Options{Command: append([]string{os.Args[0], "-copy"}, os.Args[1:]...), Workers: j.Copies, MinWorkers: j.Copies,
		Stdout: os.Stdout, Stderr: os.Stderr})
	if err == nil && status != 0 {
		err = fmt.Errorf("the job ended with status %d", status)
	}
	return err
}

// copy trains as one of these workers: steps whose variables are copied and steps whose are not take turns.
func (j job) copy() error {
	params := map[string]any{"cluster.colocate_split_and_replicate": true, "recovery.copies": 1}
	if j.Zero != "" {
		params["zero.level"] = j.Zero
	}
	t, err := j.trainer(params)
	if err != nil {
		return err
	}
	defer t.env.Close()
	var began []time.Duration // that OnStep took
	steps := func(n int, copied bool) (all []time.Duration, err error) {
		for range n {
			start := time.Now()
			if _, err := t.loop.RunSteps(t.data, 1); err != nil {
				return nil, err
			}
			if copied {
				begin := time.Now()
				if err := t.saver.OnStep(t.loop, nil); err != nil {
					return nil, err
				}
				began = append(began, time.Since(begin))
			}
			all = append(all, time.Since(start))
		}
		return all, nil
	}
	if _, err := steps(2, true); err != nil { // the first compiles, and takes the memory
		return err
	}
	if t.env.IsMain() {
		fmt.Printf("%.2f GB of state, copied after every step, by %d workers\n\n", float64(t.bytes)/1e9, j.Copies)
		fmt.Println("| | step without copies | step with copies | longer by |")
		fmt.Println("|---|---|---|---|")
	}
	began = nil
	var ratios []float64
	for round := range j.Rounds {
		plain, err := steps(4, false)
		if err != nil {
			return err
		}
		copied, err := steps(4, true)
		if err != nil {
			return err
		}
		a, b := median(plain[1:]), median(copied[1:]) // in the first, what was begun before may go on
		ratios = append(ratios, b.Seconds()/a.Seconds())
		if t.env.IsMain() {
			fmt.Printf("| round %d | %.3f s | %.3f s | %.1f %% |\n", round+1, a.Seconds(), b.Seconds(), 100*(ratios[round]-1))
		}
	}
	if t.env.IsMain() {
		fmt.Printf("\nmedian: a step with copies takes %.3f of one without; OnStep takes %.2f ms\n", median(ratios), 1000*median(began).Seconds())
	}
	return nil
}
