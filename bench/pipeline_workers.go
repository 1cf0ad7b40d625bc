// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strconv"
	"time"

	"github.com/easyparallel/epl/cluster"
)

// pipelinePath is that of workers that train a stagedMLP.
const pipelinePath = "pipeline"

// envWidth is the width of the model that workers train.
const envWidth = "EPL_BENCH_WIDTH"

// workers is two processes with one core each that train the model, as the settings want it.
func (m stagedMLP) workers(s settings) (*fleet, error) {
	const workers = 2
	vars := append(s.environment(), "GOMAXPROCS=2", cluster.EnvNumWorkers+"="+strconv.Itoa(workers), envWidth+"="+strconv.Itoa(m.width))
	return ourFleet(workers, pipelinePath, vars...)
}

// pipelineWorker trains when it is told.
func pipelineWorker(index int) error {
	width, err := strconv.Atoi(os.Getenv(envWidth))
	if err != nil {
		return err
	}
	run, err := stagedMLP{width: width}.on(nil)
	if err != nil {
		return err
	}
	return obeying(index, run)
}

// obeying trains when it is told.
func obeying(index int, run side) error {
	defer run.close()
	return obey(index, func(_ string, _, repeats int) (times []time.Duration, err error) {
		for range repeats {
			d, err := run.once()
			if err != nil {
				return nil, err
			}
			times = append(times, d)
		}
		return times, nil
	})
}
