// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
)

// predictor answers questions with the network as it is.
type predictor struct {
	exec   *model.Exec
	search search
	batch  int
}

func newPredictor(env *epl.Env, store *model.Store, network bert, f flags) (*predictor, error) {
	exec, err := model.NewExec(env.Backend(), store, network.logits)
	return &predictor{exec, f.search, f.batch}, err
}

// answers returns the answer to each question of data.dev, by its id.
func (p *predictor) answers(data questions) (map[string]string, error) {
	var start, end [][]float32
	for batch := range slices.Chunk(data.devWindows, p.batch) {
		real := len(batch)
		batch = slices.Clone(batch)
		for len(batch) < p.batch { // so that all batches have the same shape
			batch = append(batch, batch[0])
		}
		in := inputs(batch)
		logits, err := p.exec.Call(in[0], in[1], in[2])
		if err != nil {
			return nil, err
		}
		for i, all := range []*[][]float32{&start, &end} {
			rows := slices.Chunk(tensors.MustCopyFlatData[float32](logits[i]), len(batch[0].ids))
			*all = append(*all, slices.Collect(rows)[:real]...)
			if err := logits[i].FinalizeAll(); err != nil {
				return nil, err
			}
		}
	}
	return p.search.answers(data.dev, data.devWindows, start, end), nil
}

// writeAnswers writes what the official evaluation reads: a JSON object of answers by the id of their question.
func writeAnswers(path string, answers map[string]string) error {
	text, err := json.MarshalIndent(answers, "", "    ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("bert: the answers cannot be written: %w", err)
	}
	return nil
}
