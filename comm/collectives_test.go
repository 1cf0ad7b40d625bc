// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/easyparallel/epl/comm/internal/elements"
	"github.com/easyparallel/epl/comm/internal/transport"
)

// cases calls f for all element types, numbers of ranks and sizes.
func cases(t *testing.T, f func(t *testing.T, e elements.Type, n, size int, rng *rand.Rand, cs []*Communicator)) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		for _, n := range []int{1, 2, 3, 4, 5, 8} {
			w := newWorld(t, n, Options{Timeout: time.Minute})
			sizes := []int{0, 1, 2, 3, 7, n - 1, n, n + 1, 1000}
			if n == 3 || n == 8 && !testing.Short() { // whose parts are uneven
				sizes = append(sizes, 65537)
			}
			types, long := elements.All, 3
			if testing.Short() {
				long = 1
			}
			if severalWorkers(w) { // takes more time, and knows nothing of types but their sizes
				if n == 4 || n == 5 {
					continue
				}
				sizes = []int{0, n + 1, 5000}
				types = []elements.Type{elements.All[0], elements.All[1], elements.All[2], elements.All[4], elements.All[14]}
			}
			cs := ends(t, w.All(), 0)
			for i, e := range types {
				t.Run(fmt.Sprintf("%s/n=%d", e.DType, n), func(t *testing.T) {
					for _, size := range sizes {
						f(t, e, n, size, elements.SeedOf(t.Name(), size), cs)
					}
					if severalWorkers(w) && i < long {
						f(t, e, n, 70_001, elements.SeedOf(t.Name(), "long"), cs)
					}
				})
			}
		}
	})
}

// opsOf are the reductions to try: all of them, or between workers, where kernels are the same but time is short, any.
func opsOf(e elements.Type, cs []*Communicator, rng *rand.Rand) []Reduction {
	if severalWorkers(cs[0].group.world) {
		return []Reduction{e.Ops[rng.IntN(len(e.Ops))]}
	}
	return e.Ops
}

// inputs are random slices, one for each rank.
func inputs(e elements.Type, rng *rand.Rand, n, size int) (in []any) {
	for range n {
		in = append(in, e.Fill(rng, size))
	}
	return in
}

func TestAllReduceIsTheReductionInRankOrderOnEveryRank(t *testing.T) {
	cases(t, func(t *testing.T, e elements.Type, n, size int, rng *rand.Rand, cs []*Communicator) {
		in := inputs(e, rng, n, size)
		scales := []float64{1}
		if transport.Scalable(e.DType) {
			scales = append(scales, 1/float64(n))
		}
		for _, r := range opsOf(e, cs, rng) {
			for _, scale := range scales {
				want := reductionOf(e, cs[0].Group(), r, scale, in)
				mustAll(t, cs, func(c *Communicator) error {
					buf := elements.Clone(in[c.Position()])
					if err := c.AllReduceScaled(buf, r, scale); err != nil {
						return err
					}
					if !elements.SameBits(buf, want) {
						return fmt.Errorf("%d elements, %s·%g: the result is wrong", size, r, scale)
					}
					return nil
				})
			}
		}
	})
}

func TestReduceScatterGivesEachRankItsPart(t *testing.T) {
	cases(t, func(t *testing.T, e elements.Type, n, size int, rng *rand.Rand, cs []*Communicator) {
		in := inputs(e, rng, n, size)
		counts := elements.Parts(rng, size, n)
		for _, r := range opsOf(e, cs, rng) {
			want := reductionOf(e, cs[0].Group(), r, 1, in)
			for _, inPlace := range []bool{false, true} {
				mustAll(t, cs, func(c *Communicator) error {
					p := c.Position()
					from, to := transport.Total(counts[:p]), transport.Total(counts[:p+1])
					mine := elements.Clone(in[p])
					out := elements.MakeLike(mine, counts[p])
					if inPlace {
						out = elements.Slice(mine, from, to)
					}
					if err := c.ReduceScatter(mine, out, counts, r); err != nil {
						return err
					}
					if !elements.SameBits(out, elements.Slice(want, from, to)) {
						return fmt.Errorf("parts %d, %s: the result is wrong", counts, r)
					}
					return nil
				})
			}
		}
	})
}

func TestAllGatherJoinsTheParts(t *testing.T) {
	cases(t, func(t *testing.T, e elements.Type, n, size int, rng *rand.Rand, cs []*Communicator) {
		counts := elements.Parts(rng, size, n)
		want := e.Fill(rng, size)
		for _, inPlace := range []bool{false, true} {
			mustAll(t, cs, func(c *Communicator) error {
				p := c.Position()
				from, to := transport.Total(counts[:p]), transport.Total(counts[:p+1])
				in, out := elements.Slice(want, from, to), elements.MakeLike(want, size)
				if inPlace {
					out = elements.Clone(want)
					in = elements.Slice(out, from, to)
				}
				if err := c.AllGather(in, out, counts); err != nil {
					return err
				}
				if !elements.SameBits(out, want) {
					return fmt.Errorf("parts %d: the result is wrong", counts)
				}
				return nil
			})
		}
	})
}

func TestAllToAllTransposesTheParts(t *testing.T) {
	cases(t, func(t *testing.T, e elements.Type, n, size int, rng *rand.Rand, cs []*Communicator) {
		counts := make([][]int, n) // from i to j
		pieces := make([][]any, n)
		for i := range n {
			counts[i] = elements.Parts(rng, size, n)
			for j := range n {
				pieces[i] = append(pieces[i], e.Fill(rng, counts[i][j]))
			}
		}
		mustAll(t, cs, func(c *Communicator) error {
			p := c.Position()
			var outCounts []int
			var wants []any
			for i := range n {
				outCounts = append(outCounts, counts[i][p])
				wants = append(wants, pieces[i][p])
			}
			want := elements.Concat(wants...)
			out := elements.MakeLike(want, transport.Total(outCounts))
			if err := c.AllToAll(elements.Concat(pieces[p]...), out, counts[p], outCounts); err != nil {
				return err
			}
			if !elements.SameBits(out, want) {
				return fmt.Errorf("parts %d: the result is wrong", counts)
			}
			return nil
		})
	})
}

func TestBroadcastCopiesTheRoot(t *testing.T) {
	cases(t, func(t *testing.T, e elements.Type, n, size int, rng *rand.Rand, cs []*Communicator) {
		in := inputs(e, rng, n, size)
		root := rng.IntN(n)
		mustAll(t, cs, func(c *Communicator) error {
			buf := elements.Clone(in[c.Position()])
			if err := c.Broadcast(buf, root); err != nil {
				return err
			}
			if !elements.SameBits(buf, in[root]) {
				return fmt.Errorf("%d elements: the result is wrong", size)
			}
			return nil
		})
	})
}

func TestSendAndRecvCarryABuffer(t *testing.T) {
	cases(t, func(t *testing.T, e elements.Type, n, size int, rng *rand.Rand, cs []*Communicator) {
		if n == 1 {
			return
		}
		in := inputs(e, rng, n, size)
		mustAll(t, cs, func(c *Communicator) error { // round a ring
			p := c.Position()
			from := (p + n - 1) % n
			sent := c.Start(Call{Op: Send, Buf: in[p], Peer: (p + 1) % n, Tag: size})
			buf := elements.MakeLike(in[p], size)
			if err := c.Recv(buf, from, size); err != nil {
				return err
			}
			if !elements.SameBits(buf, in[from]) {
				return fmt.Errorf("%d elements: the result is wrong", size)
			}
			return sent.Wait()
		})
	})
}

func TestEqualPartsNeedNoCounts(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		cs := ends(t, newWorld(t, 3, Options{}).All(), 0)
		mustAll(t, cs, func(c *Communicator) error {
			p := int32(c.Position())
			out := make([]int32, 2)
			if err := c.ReduceScatter([]int32{1, 2, 3, 4, 5, 6}, out, nil, Sum); err != nil {
				return err
			}
			if want := []int32{3 * (2*p + 1), 3 * (2*p + 2)}; !slices.Equal(out, want) {
				return fmt.Errorf("reduce-scatter gave %d, want %d", out, want)
			}
			all := make([]int32, 6)
			if err := c.AllGather(out, all, nil); err != nil {
				return err
			}
			if want := []int32{3, 6, 9, 12, 15, 18}; !slices.Equal(all, want) {
				return fmt.Errorf("all-gather gave %d, want %d", all, want)
			}
			swapped := make([]int32, 6)
			if err := c.AllToAll(all, swapped, nil, nil); err != nil {
				return err
			}
			if want := []int32{6*p + 3, 6*p + 6, 6*p + 3, 6*p + 6, 6*p + 3, 6*p + 6}; !slices.Equal(swapped, want) {
				return fmt.Errorf("all-to-all gave %d, want %d", swapped, want)
			}
			return nil
		})
	})
}

func TestNobodyLeavesABarrierBeforeAllHaveCome(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		const n, rounds = 5, 200
		cs := ends(t, newWorld(t, n, Options{}).All(), 0)
		var came [rounds]atomic.Int32
		mustAll(t, cs, func(c *Communicator) error {
			for i := range rounds {
				came[i].Add(1)
				if err := c.Barrier(); err != nil {
					return err
				}
				if k := came[i].Load(); k != n {
					return fmt.Errorf("round %d: left with %d of %d", i, k, n)
				}
			}
			return nil
		})
	})
}

// Float sums depend on their order, so these bits change if the order does.
func TestResultsDoNotDependOnSegmentsArrivalOrRepetition(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		ranks := []int{3, 4, 7}
		if testing.Short() {
			ranks = ranks[:1]
		}
		for _, n := range ranks {
			cs := ends(t, newWorld(t, n, Options{}).All(), 0)
			for _, e := range elements.All[:4] { // floats
				size, repeats := 200_001, 3
				if severalWorkers(cs[0].group.world) {
					size, repeats = 150_001, 1 // more than a chunk, of the largest type
				}
				in := inputs(e, elements.SeedOf("bits", n), n, size)
				want := reductionOf(e, cs[0].Group(), Sum, 1, in)
				for range repeats {
					cut := rand.IntN(size) // a sum of two halves is the same as one of the whole
					mustAll(t, cs, func(c *Communicator) error {
						buf := elements.Clone(in[c.Position()])
						for _, part := range []any{elements.Slice(buf, 0, cut), elements.Slice(buf, cut, size)} {
							if err := c.AllReduce(part, Sum); err != nil {
								return err
							}
						}
						if !elements.SameBits(buf, want) {
							return fmt.Errorf("%s cut at %d: other bits", e.DType, cut)
						}
						return nil
					})
				}
			}
		}
	})
}

func TestGroupsReduceInTheOrderOfTheirRanks(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		w := newWorld(t, 4, Options{})
		g, err := w.Group([]int{3, 0, 2})
		if err != nil {
			t.Fatal(err)
		}
		in := []any{[]float32{1e8}, []float32{-1e8}, []float32{1}} // (1e8 − 1e8) + 1, in this order only
		want := reductionOf(elements.All[0], g, Sum, 1, in)
		mustAll(t, ends(t, g, 0), func(c *Communicator) error {
			buf := elements.Clone(in[c.Position()])
			if err := c.AllReduce(buf, Sum); err != nil {
				return err
			}
			if !elements.SameBits(buf, want) {
				return fmt.Errorf("the sum is %v, want %v", buf, want)
			}
			return nil
		})
	})
}
