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
			share, err := hidden(p)
			if err != nil {
				return Result{}, err
			}
			shares = append(shares, share)
		}
		r := Result{Ratio: median(shares)}
		r.Low, r.High = bootstrap(shares)
		return r, nil
	}}
}

// hidden is the share of one step, read off its timeline.
func hidden(p problem) (float64, error) {
	dir, err := os.MkdirTemp("", "epl-bench")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "trace.json")
	if err := os.Setenv("EPL_TRACE", file); err != nil {
		return 0, err
	}
	defer os.Unsetenv("EPL_TRACE")
	s, err := p.onDevices(2, "all")
	if err != nil {
		return 0, err
	}
	defer s.close()
	for range 3 {
		if _, err := s.once(); err != nil {
			return 0, err
		}
	}
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	step, err := trace.Read(f)
	if err != nil {
		return 0, err
	}
	total := step.Report().Total
	if total.Communication == 0 {
		return 0, nil
	}
	return 1 - float64(total.Exposed)/float64(total.Communication), nil
}
