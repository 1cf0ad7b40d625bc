// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
)

// numbered is a sample that can be told from others.
func numbered(n int) Sample {
	return Sample{
		Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions([]float32{float32(n), -float32(n)}, 2)},
		Labels: []*tensors.Tensor{tensors.FromScalar(int64(n))},
	}
}

// pretend makes up files: "fK" holds size(K) samples, and sample i of it has the number 100·K+i.
func pretend(size func(k int) int) Reader {
	return func(path string, _ *rand.Rand) iter.Seq2[Sample, error] {
		return func(yield func(Sample, error) bool) {
			var k int
			if _, err := fmt.Sscanf(path, "f%d", &k); err != nil {
				yield(Sample{}, err)
				return
			}
			for i := range size(k) {
				if !yield(numbered(100*k+i), nil) {
					return
				}
			}
		}
	}
}

func each(n int) Reader { return pretend(func(int) int { return n }) }

func mustFromFiles(t *testing.T, files Slice, read Reader, o FileOptions) train.Dataset {
	t.Helper()
	ds, err := FromFiles("numbers", files, read, o)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// labels reads up to limit batches, and returns the numbers of their samples.
func labels(t *testing.T, ds train.Dataset, limit int) (batches [][]int64) {
	t.Helper()
	for b, err := range ds.Iter() {
		if err != nil {
			t.Fatal(err)
		}
		numbers := tensors.MustCopyFlatData[int64](b.Labels[0])
		for i, x := range tensors.MustCopyFlatData[float32](b.Inputs[0]) {
			if want := float32(numbers[i/2]) * float32(1-i%2*2); x != want {
				t.Fatalf("input %d of sample %d is %v, not %v", i%2, numbers[i/2], x, want)
			}
		}
		if batches = append(batches, numbers); len(batches) == limit {
			break
		}
	}
	return batches
}

func flat(batches [][]int64) []int64 { return slices.Concat(batches...) }

func sorted(s []int64) []int64 { return slices.Sorted(slices.Values(s)) }

func TestBatchesHoldTheSamplesInOrder(t *testing.T) {
	files := Slice{Files: listOf(3)}
	for _, c := range []struct {
		name string
		o    FileOptions
		want string
	}{
		{"one reader keeps the order of the files", FileOptions{Batch: 2, Readers: 1}, "[[0 1] [100 101] [200 201]]"},
		{"files take turns", FileOptions{Batch: 2, Readers: 2}, "[[0 100] [1 101] [200 201]]"},
		{"the last batch is smaller", FileOptions{Batch: 4, Readers: 1}, "[[0 1 100 101] [200 201]]"},
		{"the last batch is dropped", FileOptions{Batch: 4, Readers: 1, DropLast: true}, "[[0 1 100 101]]"},
		{"batches reach over the end of an epoch", FileOptions{Batch: 4, Readers: 1, Epochs: 2}, "[[0 1 100 101] [200 201 0 1] [100 101 200 201]]"},
		{"there may be one batch only", FileOptions{Batch: 9, Readers: 1}, "[[0 1 100 101 200 201]]"},
		{"there may be no whole batch", FileOptions{Batch: 9, Readers: 1, DropLast: true}, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fmt.Sprint(labels(t, mustFromFiles(t, files, each(2), c.o), -1)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestFilesOfOneSampleStayInOrder(t *testing.T) {
	got := flat(labels(t, mustFromFiles(t, Slice{Files: listOf(20)}, each(1), FileOptions{Batch: 3}), -1))
	for i, n := range got {
		if n != int64(100*i) {
			t.Fatalf("got %v", got)
		}
	}
}

func TestAllWorkersTogetherReadEverySampleOnceInEveryEpoch(t *testing.T) {
	const epochs = 2
	for workers := 1; workers <= 5; workers++ {
		for _, uneven := range []int{0, 1} {
			replicas := make([]int, workers)
			for w := range replicas {
				replicas[w] = 1 + w%2*uneven
			}
			for n := 1; n <= 7; n += 2 {
				size := func(k int) int { return 7 + k%3 } // enough that everybody has some
				for _, deal := range []DealOptions{{}, {DropLast: true}, {Unbalanced: true}} {
					for _, o := range []FileOptions{{Batch: 4, Epochs: epochs}, {Batch: 3, Epochs: epochs, Shuffle: 5, Seed: 9, Readers: 2}} {
						var got []int64
						var dropped []string
						for w := range workers {
							s, err := Deal(listOf(n), replicas, w, deal)
							if err != nil {
								t.Fatal(err)
							}
							dropped = s.Dropped
							got = append(got, flat(labels(t, mustFromFiles(t, s, pretend(size), o), -1))...)
						}
						var want []int64
						for k, f := range listOf(n) {
							for i := range size(k) {
								if !slices.Contains(dropped, f) {
									want = append(want, slices.Repeat([]int64{int64(100*k + i)}, epochs)...)
								}
							}
						}
						if !slices.Equal(sorted(got), want) {
							t.Fatalf("%d files, replicas %v, %+v, %+v:\ngot  %v\nwant %v", n, replicas, deal, o, sorted(got), want)
						}
					}
				}
			}
		}
	}
}

func TestDealtSamplesDifferByOneAtMost(t *testing.T) {
	for w := range 3 {
		s, err := Deal(listOf(5), []int{1, 1, 1}, w, DealOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := flat(labels(t, mustFromFiles(t, s, pretend(func(k int) int { return 1 + k%2*4 }), FileOptions{Batch: 2}), -1))
		if len(got) < 4 || len(got) > 5 { // 13 samples
			t.Errorf("worker %d has %d of 13 samples", w, len(got))
		}
	}
}

func TestTheSeedDecidesTheOrder(t *testing.T) {
	files := Slice{Files: listOf(6)}
	o := FileOptions{Batch: 5, Shuffle: 8, Seed: 1, Epochs: 2}
	ds := mustFromFiles(t, files, each(5), o)
	first, second := flat(labels(t, ds, -1)), flat(labels(t, ds, -1))
	again := flat(labels(t, mustFromFiles(t, files, each(5), o), -1))
	o.Seed = 2
	other := flat(labels(t, mustFromFiles(t, files, each(5), o), -1))
	switch {
	case !slices.Equal(first, again):
		t.Errorf("the same seed gives %v and %v", first, again)
	case slices.Equal(first, other):
		t.Error("another seed gives the same order")
	case slices.Equal(first, second):
		t.Error("a second iteration has the same order")
	case slices.Equal(first[:30], first[30:]):
		t.Error("a second epoch has the same order")
	case slices.IsSorted(first[:30]):
		t.Error("nothing is shuffled")
	case !slices.Equal(sorted(first[:30]), sorted(first[30:])):
		t.Error("the epochs have different samples")
	}
}

func TestWhatReadersDoAtRandomIsReproducible(t *testing.T) {
	read := func(_ string, random *rand.Rand) iter.Seq2[Sample, error] {
		return func(yield func(Sample, error) bool) { yield(numbered(random.IntN(1<<20)), nil) }
	}
	run := func(files ...string) []int64 {
		return flat(labels(t, mustFromFiles(t, Slice{Files: files}, read, FileOptions{Batch: 1, Epochs: 2, Seed: 3}), -1))
	}
	all, one := run("a", "b"), run("b") // as if another worker read a
	if all[1] != one[0] || all[3] != one[1] {
		t.Errorf("with the other file %v, without it %v", all, one)
	}
	if one[0] == one[1] || all[0] == all[1] {
		t.Errorf("epochs or files do not differ: %v", all)
	}
}

func TestAnEndlessDatasetGoesOn(t *testing.T) {
	got := labels(t, mustFromFiles(t, Slice{Files: listOf(2)}, each(1), FileOptions{Batch: 3, Epochs: Endless}), 100)
	if len(got) != 100 || len(flat(got)) != 300 {
		t.Errorf("%d batches of %d samples", len(got), len(flat(got)))
	}
}

func TestReadingIsParallelAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int64
		gate := make(chan struct{})
		slow := func(string, *rand.Rand) iter.Seq2[Sample, error] {
			return func(yield func(Sample, error) bool) {
				begun.Add(1)
				<-gate
				yield(numbered(1), nil)
			}
		}
		ds := mustFromFiles(t, Slice{Files: listOf(1000)}, slow, FileOptions{Batch: 10, Readers: 3})
		next, stop := iter.Pull2(ds.Iter())
		defer stop()
		go func() {
			synctest.Wait()
			if n := begun.Load(); n != 6 {
				t.Errorf("%d files are read at once by 3 readers, not 3 and 3 ahead", n)
			}
			close(gate)
		}()
		if _, err, ok := next(); err != nil || !ok {
			t.Fatal(err, ok)
		}
		synctest.Wait() // everybody waits for room
		if n := begun.Load(); n < 30 || n > 40 {
			t.Errorf("%d samples were read for one batch of 10", n)
		}
	})
}

func TestErrorsOfReadingNameTheFile(t *testing.T) {
	fails := func(how func(yield func(Sample, error) bool)) Reader {
		return func(path string, _ *rand.Rand) iter.Seq2[Sample, error] {
			if path != "f3" {
				return each(2)(path, nil)
			}
			return how
		}
	}
	for _, c := range []struct {
		name string
		read Reader
		want string
	}{
		{"an error", fails(func(yield func(Sample, error) bool) { yield(Sample{}, errors.New("no such file")) }),
			`epl: the dataset "numbers": reading f3: no such file`},
		{"an error after samples", fails(func(yield func(Sample, error) bool) {
			_ = yield(numbered(1), nil) && yield(Sample{}, errors.New("cut off"))
		}), `epl: the dataset "numbers": reading f3: cut off`},
		{"a panic", fails(func(func(Sample, error) bool) { panic("index out of range") }),
			`epl: the dataset "numbers": reading f3 panicked: index out of range`},
		{"a panic after samples", fails(func(yield func(Sample, error) bool) {
			if yield(numbered(1), nil) {
				panic("cut off")
			}
		}), `epl: the dataset "numbers": reading f3 panicked: cut off`},
		{"an empty file", fails(func(func(Sample, error) bool) {}),
			`epl: the dataset "numbers": reading f3: there is no sample in it; take it off the list of files`},
		{"another shape", fails(func(yield func(Sample, error) bool) {
			yield(Sample{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(make([]float32, 3), 3)}, Labels: numbered(1).Labels}, nil)
		}), `input 0 of a sample of f2 is (Float32)[2], that of f3 is (Float32)[3]; samples of a batch must be alike`},
		{"another number of labels", fails(func(yield func(Sample, error) bool) { yield(Sample{Inputs: numbered(1).Inputs}, nil) }),
			`a sample of f2 has 1 labels, one of f3 has 0; samples of a batch must be alike`},
	} {
		t.Run(c.name, func(t *testing.T) {
			ds := mustFromFiles(t, Slice{Files: listOf(9)}, c.read, FileOptions{Batch: 4, Readers: 1})
			var got error
			batches := 0
			for _, err := range ds.Iter() {
				if got = err; err == nil {
					batches++
				}
			}
			if got == nil || !strings.Contains(got.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", got, c.want)
			}
			if batches != 1 {
				t.Errorf("%d whole batches came before it, not 1", batches)
			}
		})
	}
}

func TestAWorkerWithoutSamplesIsToldSo(t *testing.T) {
	files := Slice{Files: listOf(1), Part: Part{First: 1, Own: 1, Of: 2}}
	ds := mustFromFiles(t, files, each(1), FileOptions{Batch: 1, Epochs: Endless})
	for _, err := range ds.Iter() {
		if err == nil || !strings.Contains(err.Error(), "its 1 files hold no sample for this worker, which reads 1 out of every 2") {
			t.Errorf("got %v", err)
		}
	}
}

func TestWhatIsNoDatasetIsRefused(t *testing.T) {
	files := Slice{Files: listOf(1)}
	for _, c := range []struct {
		files Slice
		read  Reader
		o     FileOptions
		want  string
	}{
		{Slice{}, each(1), FileOptions{Batch: 1}, `epl: the dataset "numbers" has no files`},
		{files, nil, FileOptions{Batch: 1}, "has no function that reads its files"},
		{files, each(1), FileOptions{}, "has batches of 0 samples"},
		{files, each(1), FileOptions{Batch: 1, Epochs: -2}, "has -2 epochs"},
		{files, each(1), FileOptions{Batch: 1, Shuffle: -1}, "shuffles among -1 samples"},
		{files, each(1), FileOptions{Batch: 1, Readers: -1}, "neither can be negative"},
	} {
		if _, err := FromFiles("numbers", c.files, c.read, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

func TestAnIterationThatIsLeftLeavesNobodyBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if a goroutine stays
		ds := mustFromFiles(t, Slice{Files: listOf(50)}, each(9), FileOptions{Batch: 2, Shuffle: 10, Epochs: Endless})
		for i := range 20 {
			labels(t, ds, 1+i%3)
		}
	})
}
