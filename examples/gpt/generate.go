// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl/hf"
)

// write continues a text by so many tokens, or up to the end of a text. Each token is computed from all that are in the window: there is no cache of keys and values.
func (t *training) write(prompt string, tokens int) (string, error) {
	ids := hf.IDs(t.tokenizer, prompt)
	if len(ids) == 0 {
		return "", fmt.Errorf("gpt: -prompt is empty; begin with a word")
	}
	exec, err := model.NewExec(t.env.Backend(), t.store, func(scope *model.Scope, ids, at *Node) *Node { return t.network.logits(scope, ids, at) })
	if err != nil {
		return "", err
	}
	random := rand.New(rand.NewPCG(uint64(t.f.seed), 0)) // all workers draw the same
	end, hasEnd := t.tokenizer.ID(hf.EndOfText)
	first := len(ids)
	for range tokens {
		window := ids[max(0, len(ids)-t.f.length):]
		padded := make([]int32, t.f.length) // what comes after the last token is not looked at
		copy(padded, window)
		out, err := exec.Call(tensors.FromFlatDataAndDimensions(padded, 1, t.f.length), []int32{int32(len(window) - 1)})
		if err != nil {
			return "", err
		}
		logits, err := tensors.CopyFlatData[float32](out[0])
		if err != nil {
			return "", err
		}
		next := draw(logits[:t.tokenizer.Size()], t.f.temperature, t.f.topK, random)
		if hasEnd && next == end {
			break
		}
		ids = append(ids, next)
	}
	return t.tokenizer.Decode(ids[first:]), nil
}

// draw chooses a token by how likely each is: the likeliest at temperature 0, and any of the likeliest k at higher ones; 0: of all.
func draw(logits []float32, temperature float64, k int, random *rand.Rand) int32 {
	order := make([]int32, len(logits))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
	if temperature == 0 {
		return order[0]
	}
	if k > 0 {
		order = order[:min(k, len(order))]
	}
	weights, sum := make([]float64, len(order)), 0.0
	for i, id := range order {
		weights[i] = math.Exp(float64(logits[id]-logits[order[0]]) / temperature)
		sum += weights[i]
	}
	at := random.Float64() * sum
	for i, w := range weights {
		if at -= w; at < 0 {
			return order[i]
		}
	}
	return order[len(order)-1]
}
