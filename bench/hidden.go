// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"

	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl/trace"
)

// hiddenRow measures how much of the time that gradients need to be reduced passes while backward goes on.
func hiddenRow() Row {
	p := problem{mlp(2048, 2048, 1024), loss.MeanSquaredError, vectors(64, 1024)}
	return Row{Name: "reduction-hidden/2-devices/mlp-7M", Peer: "time of reductions", Pairs: 10, Custom: func(runs int) (Result, error) {
		var shares []float64
		for range runs {
			report, err := reportOf(func() (side, error) { return p.onDevices(2, "all") })
			if err != nil {
				return Result{}, err
			}
			share := 0.0
			if total := report.Total; total.Communication > 0 {
				share = 1 - float64(total.Exposed)/float64(total.Communication)
			}
			shares = append(shares, share)
		}
		r := Result{Ratio: median(shares)}
		r.Low, r.High = bootstrap(shares)
		return r, nil
	}}
}

// reportOf takes a timeline of a step.
func reportOf(begin func() (side, error)) (*trace.Report, error) {
	dir, err := os.MkdirTemp("", "epl-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "trace.json")
	if err := os.Setenv("EPL_TRACE", file); err != nil {
		return nil, err
	}
	defer os.Unsetenv("EPL_TRACE")
	s, err := begin()
	if err != nil {
		return nil, err
	}
	defer s.close()
	for range 3 {
		if _, err := s.once(); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	step, err := trace.Read(f)
	if err != nil {
		return nil, err
	}
	return step.Report(), nil
}
