// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package moe

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
)

// routed is what a gate decides, as numbers.
type routed struct {
	dispatch, combine [][][][]float32
	balance           []float32
}

func route(t *testing.T, g Gate, probabilities [][][]float32, real [][]float32) (r routed) {
	t.Helper()
	exec, err := NewExec(newEnv(t).Backend(), func(p, real *Node) (dispatch, combine, balance *Node) { return g.route(p, real) })
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Call(probabilities, real)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return routed{out[0].Value().([][][][]float32), out[1].Value().([][][][]float32), out[2].Value().([]float32)}
}

// randomWords makes probabilities of experts, and which words are real. Some probabilities are equal.
func randomWords(random *rand.Rand, groups, words, experts int) (probabilities [][][]float32, real [][]float32) {
	for range groups {
		var rows [][]float32
		padding := random.IntN(words + 1)
		mask := make([]float32, words)
		for w := range words {
			row, sum := make([]float32, experts), float32(0)
			for e := range row {
				row[e] = float32(1 + random.IntN(4))
				sum += row[e]
			}
			for e := range row {
				row[e] /= sum
			}
			rows = append(rows, row)
			if w < words-padding {
				mask[w] = 1
			}
		}
		probabilities, real = append(probabilities, rows), append(real, mask)
	}
	return probabilities, real
}

// expected routes words one after the other.
func expected(g Gate, p [][]float32, real []float32) (dispatch, combine [][][]float32, dropped int) {
	capacity := g.Capacity(len(p))
	used := make([]int, g.Experts)
	for w := range p {
		d, c := make([][]float32, g.Experts), make([][]float32, g.Experts)
		for e := range d {
			d[e], c[e] = make([]float32, capacity), make([]float32, capacity)
		}
		dispatch, combine = append(dispatch, d), append(combine, c)
		if real[w] == 0 {
			continue
		}
		var chosen []int
		total := float32(0)
		for range g.TopK {
			best := -1
			for e := range p[w] {
				if (len(chosen) == 0 || chosen[0] != e) && (best < 0 || p[w][e] > p[w][best]) {
					best = e
				}
			}
			chosen = append(chosen, best)
			total += p[w][best]
		}
		for _, e := range chosen {
			if used[e] == capacity {
				dropped++
				continue
			}
			d[e][used[e]], c[e][used[e]] = 1, p[w][e]
			if g.TopK > 1 {
				c[e][used[e]] /= total
			}
			used[e]++
		}
	}
	return dispatch, combine, dropped
}

func TestWordsGoToTheLikeliestExpertsThatHaveRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	dropped := map[bool]int{}
	for _, c := range []struct {
		experts, topK, words int
		factor               float64
	}{
		{4, 1, 9, 1}, {4, 2, 9, 1}, {3, 2, 7, 0.5}, {8, 1, 5, 1.25}, {2, 2, 6, 10}, {1, 1, 5, 0.5}, {5, 2, 12, 100},
	} {
		g := Gate{Experts: c.experts, TopK: c.topK, CapacityFactor: c.factor}
		p, real := randomWords(random, 6, c.words, c.experts)
		got := route(t, g, p, real)
		for group := range p {
			dispatch, combine, left := expected(g, p[group], real[group])
			dropped[c.factor > 1.5] += left
			if diff := largest(got.dispatch[group], dispatch); diff != 0 {
				t.Fatalf("%+v: dispatch %v, want %v", c, got.dispatch[group], dispatch)
			}
			if diff := largest(got.combine[group], combine); diff > 1e-6 {
				t.Fatalf("%+v: combine %v, want %v", c, got.combine[group], combine)
			}
		}
	}
	if dropped[false] == 0 || dropped[true] != 0 {
		t.Errorf("dropped without enough room: %d, and with it: %d", dropped[false], dropped[true])
	}
}

// largest returns the largest difference.
func largest(a, b [][][]float32) (diff float64) {
	for i := range b {
		for j := range b[i] {
			for k := range b[i][j] {
				diff = max(diff, math.Abs(float64(a[i][j][k]-b[i][j][k])))
			}
		}
	}
	return diff
}

func TestPlacesAreOfOneWordAndWordsOfFewExperts(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, topK := range []int{1, 2} {
		g := Gate{Experts: 5, TopK: topK, CapacityFactor: 1}
		p, real := randomWords(random, 8, 11, g.Experts)
		got := route(t, g, p, real)
		for group := range p {
			inPlace := map[string]float32{}
			for w := range p[group] {
				var experts, weight float32
				for e := range g.Experts {
					var here float32
					for place, goes := range got.dispatch[group][w][e] {
						here += goes
						weight += got.combine[group][w][e][place]
						inPlace[fmt.Sprint(e, place)] += goes
						if (got.combine[group][w][e][place] > 0) != (goes > 0) {
							t.Errorf("word %d counts where it is not", w)
						}
					}
					if here > 1 {
						t.Errorf("word %d has %v places at expert %d", w, here, e)
					}
					experts += here
				}
				if experts > float32(topK)*real[group][w] {
					t.Errorf("word %d goes to %v experts", w, experts)
				}
				if weight > 1.000001 || topK == 2 && experts == 2 && weight < 0.999999 {
					t.Errorf("answers to word %d count for %v in total", w, weight)
				}
			}
			for place, words := range inPlace {
				if words > 1 {
					t.Errorf("place %s has %v words", place, words)
				}
			}
		}
	}
}

func TestCapacityIsRoomForTheWordsOfASentence(t *testing.T) {
	for _, c := range []struct {
		experts, topK, words int
		factor               float64
		want                 int
	}{
		{8, 2, 12, 1, 3}, {8, 2, 12, 1.5, 5}, {8, 1, 16, 1, 2}, {8, 1, 16, 1.25, 3}, {64, 1, 4, 1, 1}, {1, 1, 10, 1, 10},
	} {
		g := Gate{Experts: c.experts, TopK: c.topK, CapacityFactor: c.factor}
		if got := g.Capacity(c.words); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestBalanceIsOneWhereExpertsAreEquallyBusyAndMoreElse(t *testing.T) {
	g := Gate{Experts: 2, TopK: 1, CapacityFactor: 2}
	even := [][]float32{{0.75, 0.25}, {0.25, 0.75}, {0.9, 0.1}} // the last is padding
	onlyFirst := [][]float32{{0.75, 0.25}, {0.75, 0.25}, {0.1, 0.9}}
	got := route(t, g, [][][]float32{even, onlyFirst, even}, [][]float32{{1, 1, 0}, {1, 1, 0}, {0, 0, 0}}).balance
	for i, want := range []float32{1, 1.5, 0} {
		if math.Abs(float64(got[i]-want)) > 1e-6 {
			t.Errorf("group %d: %v, want %v", i, got[i], want)
		}
	}
}

func TestGatesLearn(t *testing.T) {
	for _, topK := range []int{1, 2} {
		g := Gate{Experts: 3, TopK: topK, CapacityFactor: 3}
		exec, err := NewExec(newEnv(t).Backend(), func(logits *Node) *Node {
			_, combine, _ := g.route(Softmax(logits, -1), OnesLike(Squeeze(Slice(logits, AxisRange(), AxisRange(), AxisElem(0)), -1)))
			each := Mul(ReduceSum(combine, -1), AddScalar(IotaFull(logits.Graph(), logits.Shape()), 1)) // answers that differ
			return Gradient(ReduceAllSum(each), logits)[0]
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Call([][][]float32{{{0.5, 0, -0.5}}})
		if err != nil {
			t.Fatalf("%+v", err)
		}
		gradient := tensors.MustCopyFlatData[float32](out[0])
		if math.Abs(float64(gradient[0])) < 1e-3 && math.Abs(float64(gradient[1])) < 1e-3 {
			t.Errorf("top %d: the gradient of the gate is %v", topK, gradient)
		}
	}
}
