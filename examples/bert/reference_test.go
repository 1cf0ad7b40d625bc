// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
)

// reference computes BERT with loops, from weights as the Hub stores them: what the network must compute.
type reference struct {
	b       bert
	weights map[string]stored
}

func (r reference) linear(name string, x [][]float64) [][]float64 {
	w, bias := r.weights[name+".weight"], r.weights[name+".bias"]
	out := make([][]float64, len(x))
	for i := range x {
		out[i] = make([]float64, w.shape[0])
		for o := range out[i] {
			out[i][o] = bias.values[o]
			for k, v := range x[i] {
				out[i][o] += w.values[o*w.shape[1]+k] * v
			}
		}
	}
	return out
}

func (r reference) normalise(name string, x [][]float64) [][]float64 {
	gain, offset := r.weights[name+".weight"], r.weights[name+".bias"]
	out := make([][]float64, len(x))
	for i, row := range x {
		var mean, variance float64
		for _, v := range row {
			mean += v / float64(len(row))
		}
		for _, v := range row {
			variance += (v - mean) * (v - mean) / float64(len(row))
		}
		for k, v := range row {
			out[i] = append(out[i], (v-mean)/math.Sqrt(variance+1e-12)*gain.values[k]+offset.values[k])
		}
	}
	return out
}

func added(x, y [][]float64) [][]float64 {
	out := make([][]float64, len(x))
	for i := range x {
		for k := range x[i] {
			out[i] = append(out[i], x[i][k]+y[i][k])
		}
	}
	return out
}

// attend is attention of all heads; what is masked gets no weight.
func (r reference) attend(q, k, v [][]float64, mask []int32) [][]float64 {
	size := r.b.hidden / r.b.heads
	out := make([][]float64, len(q))
	for i := range q {
		out[i] = make([]float64, r.b.hidden)
		for h := 0; h < r.b.hidden; h += size {
			weights, sum := make([]float64, len(k)), 0.0
			for j := range k {
				if mask[j] == 0 {
					continue
				}
				score := 0.0
				for d := h; d < h+size; d++ {
					score += q[i][d] * k[j][d]
				}
				weights[j] = math.Exp(score / math.Sqrt(float64(size)))
				sum += weights[j]
			}
			for j := range v {
				for d := h; d < h+size; d++ {
					out[i][d] += weights[j] / sum * v[j][d]
				}
			}
		}
	}
	return out
}

// logits returns the two scores of each position.
func (r reference) logits(w window) [][]float64 {
	row := func(name string, i int) []float64 {
		return r.weights[name].values[i*r.b.hidden : (i+1)*r.b.hidden]
	}
	x := make([][]float64, len(w.ids))
	for i := range x {
		for k := range r.b.hidden {
			x[i] = append(x[i], row("embeddings.word_embeddings.weight", int(w.ids[i]))[k]+
				row("embeddings.position_embeddings.weight", i)[k]+row("embeddings.token_type_embeddings.weight", int(w.segments[i]))[k])
		}
	}
	x = r.normalise("embeddings.LayerNorm", x)
	for n := range r.b.layers {
		layer := fmt.Sprintf("encoder.layer.%d.", n)
		y := r.attend(r.linear(layer+"attention.self.query", x), r.linear(layer+"attention.self.key", x),
			r.linear(layer+"attention.self.value", x), w.mask)
		x = r.normalise(layer+"attention.output.LayerNorm", added(x, r.linear(layer+"attention.output.dense", y)))
		y = r.linear(layer+"intermediate.dense", x)
		for _, row := range y {
			for k, v := range row {
				row[k] = v * 0.5 * (1 + math.Erf(v/math.Sqrt2))
			}
		}
		x = r.normalise(layer+"output.LayerNorm", added(x, r.linear(layer+"output.dense", y)))
	}
	return r.linear("qa_outputs", x)
}
