// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/ir"
)

func TestPartsOfATensorPutTogetherAreTheTensor(t *testing.T) {
	s := shapes.Make(dtypes.Float32, 3, 7, 4)
	whole := numbered(s)
	for dim, sizes := range [][]int{{1, 2}, {3, 3, 1}, {2, 0, 1, 1}} {
		again := newFlat(s)
		start := 0
		for _, n := range sizes {
			r := rows{dim: dim, start: start, size: n}
			part := newFlat(r.shape(s))
			r.cut(part, whole, s)
			r.paste(again, part, s)
			start += n
		}
		if !slices.Equal(again.([]float32), whole.([]float32)) {
			t.Errorf("dim %d in %v: %v", dim, sizes, again)
		}
	}
}

// What a device gets of a variable lies in memory that was used before: what is past its end is zero nevertheless.
func TestThePaddingOfAPartIsZero(t *testing.T) {
	op, err := gobackend.New("ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	device := cpu.New(op, 1)
	runner := New(nil, device)
	s := shapes.Make(dtypes.Float32, 7)
	used, err := device.BufferFromFlatData(0, []float32{9, 9, 9, 9}, shapes.Make(dtypes.Float32, 4))
	if err != nil {
		t.Fatal(err)
	}
	b, err := runner.BufferFromFlatData(0, numbered(s), s)
	if err != nil {
		t.Fatal(err)
	}
	for part, want := range [][]float32{{1, 2, 3, 4}, {5, 6, 7, 0}} {
		if err := used.Finalize(); err != nil {
			t.Fatal(err)
		}
		if used, err = b.(*Buffer).copied(0, rows{dim: -1, part: part, parts: 2}); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 4)
		if err := used.ToFlatData(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("part %d is %v, not %v (%v)", part, got, want, err)
		}
	}
}

func numbered(s shapes.Shape) any {
	flat := newFlat(s).([]float32)
	for i := range flat {
		flat[i] = float32(i + 1)
	}
	return flat
}

// Whatever the dims and the sizes of parts, an exchange gives what its words say.
func TestExchangesAlongAnyDim(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 60 {
		k := 2 + r.Intn(3)
		whole := shapes.Make(dtypes.Float32, k+r.Intn(3), k+r.Intn(3), k+r.Intn(3))
		dim := r.Intn(3)
		split := (dim + 1 + r.Intn(2)) % 3
		cuts := func(dim int) (parts []rows) {
			n, start := whole.Dimensions[dim], 0
			for j := range k {
				size := n / k
				if j < n%k {
					size++
				}
				parts = append(parts, rows{dim: dim, start: start, size: size})
				start += size
			}
			return parts
		}
		sum, largest := ir.Placement{Kind: ir.Partial, Reduce: ir.ReduceBySum}, ir.Placement{Kind: ir.Partial, Reduce: ir.ReduceByMax}
		before, after := ir.Placement{Kind: ir.Sharded, Dim: dim, Unit: 1}, ir.Placement{Kind: ir.Sharded, Dim: split, Unit: 1}
		for _, x := range [][2]ir.Placement{{sum, {}}, {largest, {}}, {before, {}}, {sum, after}, {before, after}} {
			t.Run(fmt.Sprintf("%s to %s of %v over %d", x[0], x[1], whole.Dimensions, k), func(t *testing.T) {
				exchanges(t, x[0], x[1], whole, cuts(dim), cuts(split), k)
			})
		}
	}
}

// exchanges checks an exchange between k devices. What is put together has the parts along dim, what is divided those along
// split.
func exchanges(t *testing.T, before, after ir.Placement, whole shapes.Shape, along, across []rows, k int) {
	t.Helper()
	all := numbered(whole).([]float32)
	op := &ir.Op{Attrs: &ir.Reshard{}}
	op.Inputs, op.Outputs = []*ir.Value{{Op: &ir.Op{Attrs: &ir.Parameter{}}, Shape: whole}}, []*ir.Value{{Op: op, Shape: whole}}
	op.Inputs[0].SetOn(ir.Model, before, k)
	op.Outputs[0].SetOn(ir.Model, after, k)
	_, how := op.Change()
	from, want := make([]any, k), make([]any, k)
	for j := range k {
		from[j], want[j] = slices.Clone(all), slices.Clone(all)
		sum := want[j].([]float32)
		switch how {
		case ir.AllReduceOf:
			for i := range sum {
				from[j].([]float32)[i] *= float32(j + 1)
				if sum[i] *= float32(k); before.Reduce == ir.ReduceBySum {
					sum[i] = all[i] * float32(k*(k+1)/2)
				}
			}
		case ir.AllGatherOf:
			from[j] = newFlat(along[j].shape(whole))
			along[j].cut(from[j], all, whole)
		case ir.ReduceScatterOf:
			for i := range sum {
				sum[i] *= float32(k)
			}
			part := newFlat(across[j].shape(whole))
			across[j].cut(part, sum, whole)
			want[j] = part
		case ir.AllToAllOf:
			from[j], want[j] = newFlat(along[j].shape(whole)), newFlat(across[j].shape(whole))
			along[j].cut(from[j], all, whole)
			across[j].cut(want[j], all, whole)
		}
	}
	w, err := comm.NewInProcess(k, comm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var wg sync.WaitGroup
	for j := range k {
		wg.Go(func() {
			end, err := w.All().Communicator(j, 0)
			if err != nil {
				t.Error(err)
				return
			}
			got := newFlat(op.Outputs[0].LocalShape(ir.Coordinates{0, j}))
			if err := collective(end, "test", op, how, ir.Coordinates{0, j}, k, from[j], got, onHeap); err != nil {
				t.Error(err)
			} else if !slices.Equal(got.([]float32), want[j].([]float32)) {
				t.Errorf("device %d has %v, want %v", j, got, want[j])
			}
		})
	}
	wg.Wait()
}

// onHeap is memory of Go.
func onHeap(s shapes.Shape) (flat any, free func() error, err error) {
	return newFlat(s), func() error { return nil }, nil
}
