package main

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/gomlx/gomlx/ml/train/loss"
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
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var trace struct {
		TraceEvents []struct {
			Cat string
			Dur float64
		}
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		return 0, err
	}
	var communicate, wait float64
	for _, e := range trace.TraceEvents {
		switch e.Cat {
		case "communicate":
			communicate += e.Dur
		case "wait":
			wait += e.Dur
		}
	}
	if communicate == 0 {
		return 0, nil
	}
	return max(0, 1-wait/communicate), nil
}
