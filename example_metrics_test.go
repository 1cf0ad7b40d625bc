// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/metrics"
)

// tracker is a sink of one's own: it sends records to the service of an experiment tracker.
type tracker struct{ url string }

func (s tracker) Write(r metrics.Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	answer, err := http.Post(s.url, "application/json", bytes.NewReader(text))
	if err == nil {
		answer.Body.Close()
	}
	return err
}

func (tracker) Close() error { return nil }

// trainWith trains for a few steps on two devices, and tells sinks of it.
func trainWith(steps int, sinks ...metrics.Sink) (err error) {
	env, err := epl.Init(nil, epl.WithLocalDevices(2))
	if err != nil {
		return err
	}
	defer env.Close()
	store := model.NewStore()
	trainer := train.NewTrainer(env.Backend(), store, savedPlans["replicas"].model, loss.MeanSquaredError,
		epl.Optimizer(optimizer.Adam().Done()), nil, nil)
	loop := train.NewLoop(trainer)
	m := env.Metrics(sinks...).Every(2).Histograms(4)
	defer func() {
		if e := m.Close(); err == nil {
			err = e
		}
	}()
	loop.OnStep("metrics", 100, m.OnStep)
	_, err = loop.RunSteps(env.Dataset(savedBatches{}), steps)
	return err
}

func ExampleEnv_Metrics() {
	dir, err := os.MkdirTemp("", "metrics")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	var got []int64 // what the service hears
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		var r metrics.Record
		if json.NewDecoder(q.Body).Decode(&r) == nil {
			got = append(got, r.Step)
		}
	}))
	defer service.Close()
	err = trainWith(5, metrics.JSONL(filepath.Join(dir, "metrics.jsonl")), metrics.TensorBoard(dir), tracker{service.URL})
	fmt.Println(got, err)
	// Output: [1 2 4] <nil>
}

// broken is a sink that takes so many records.
type broken struct {
	takes  int
	closed bool
}

func (s *broken) Write(metrics.Record) error {
	if s.takes--; s.takes < 0 {
		return errors.New("the disk is full")
	}
	return nil
}

func (s *broken) Close() error {
	s.closed = true
	return nil
}
