// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/internal/procmem"
	"github.com/easyparallel/epl/state"
)

// alone reads what one of several workers does, with nobody beside it on the disk and the cores: what it has to verify, and its part of each variable under ZeRO v2. It prints what that took.
func (j job) alone() error {
	before := procmem.Now()
	files := &checkpoint.Counted{FS: checkpoint.OS}
	all, _, damaged, err := checkpoint.List(files, j.Dir)
	if err != nil || len(damaged) > 0 || len(all) == 0 {
		return fmt.Errorf("%d checkpoints are in %s, damaged: %v: %w", len(all), j.Dir, damaged, err)
	}
	start := time.Now()
	c, err := checkpoint.Open(files, filepath.Join(j.Dir, all[len(all)-1].Name))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Verify(0, j.Alone); err != nil {
		return err
	}
	verified := time.Since(start)
	if err := forget(j.Dir); err != nil {
		return err
	}
	start = time.Now()
	var parts [][]byte
	for _, path := range c.Paths() {
		s, _ := c.Shape(path)
		r := state.Whole(s.Dimensions)
		if s.Size() >= j.Alone {
			r.From, r.To = 0, s.Size()/j.Alone
		}
		part := make([]byte, state.Bytes(s.DType, r.Size()))
		if err := c.Read(path, r, part); err != nil {
			return err
		}
		parts = append(parts, part)
	}
	read := time.Since(start)
	bytes := 0
	for _, part := range parts {
		bytes += len(part)
	}
	fmt.Printf("%.2f s | %.2f s | %.0f MB | %.0f MB | %.0f MB | %.0f MB |\n", verified.Seconds(), read.Seconds(), float64(files.Read.Load())/1e6, float64(procmem.Disk())/1e6,
		float64(bytes)/1e6, float64(procmem.Peak()-before)/1e6)
	return nil
}

// each number of workers has its share read by a process, one after another; the one in the middle of three is shown.
func (j job) shares() error {
	fmt.Println("\n| share, alone on its disk | verify its share | read its parts | it reads | from the disk | its parts | peak memory |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, n := range j.Workers {
		type result struct {
			text string
			took float64
		}
		var results []result
		for range 3 {
			if err := forget(j.Dir); err != nil {
				return err
			}
			out, err := exec.Command(os.Args[0], "-alone", fmt.Sprint(n), "-dir", j.Dir).CombinedOutput()
			var verified, read float64
			if _, scan := fmt.Sscanf(string(out), "%f s | %f s |", &verified, &read); err != nil || scan != nil {
				return fmt.Errorf("the share of one of %d: %w\n%s", n, err, out)
			}
			results = append(results, result{string(out), verified + read})
		}
		slices.SortFunc(results, func(a, b result) int { return int(math.Copysign(1, a.took-b.took)) })
		fmt.Printf("| 1/%d | %s", n, results[1].text)
	}
	return nil
}
