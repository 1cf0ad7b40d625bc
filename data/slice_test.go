// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func listOf(n int) (files []string) {
	for i := range n {
		files = append(files, fmt.Sprintf("f%d", i))
	}
	return files
}

// dealt shows what all workers get: their files, a star where samples are dealt, and what is dropped.
func dealt(t *testing.T, files []string, replicas []int, o DealOptions) string {
	t.Helper()
	var all []string
	var dropped []string
	for w := range replicas {
		s, err := Deal(files, replicas, w, o)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(s.Files, " ")
		if s.Part.Of > 0 {
			text += fmt.Sprintf(" *%d+%d/%d", s.Part.First, s.Part.Own, s.Part.Of)
		}
		all = append(all, text)
		dropped = s.Dropped
	}
	text := strings.Join(all, " | ")
	if len(dropped) > 0 {
		text += " - " + strings.Join(dropped, " ")
	}
	return text
}

func TestFilesAreDealtByModelReplicas(t *testing.T) {
	drop, unbalanced := DealOptions{DropLast: true}, DealOptions{Unbalanced: true}
	both := DealOptions{DropLast: true, Unbalanced: true}
	for _, c := range []struct {
		files    int
		replicas []int
		o        DealOptions
		want     string
	}{
		{2, []int{2, 2}, DealOptions{}, "f0 | f1"},
		{4, []int{2, 2}, DealOptions{}, "f0 f2 | f1 f3"},
		{1, []int{2, 2}, DealOptions{}, "f0 *0+1/2 | f0 *1+1/2"},
		{3, []int{2, 2}, DealOptions{}, "f0 f1 f2 *0+1/2 | f0 f1 f2 *1+1/2"},
		{3, []int{2, 2}, drop, "f0 | f1 - f2"},
		{3, []int{2, 2}, unbalanced, "f0 f2 | f1"},
		{3, []int{2, 2}, both, "f0 f2 | f1"},

		// Unequal numbers of replicas.
		{3, []int{4, 2}, DealOptions{}, "f0 f1 | f2"},
		{2, []int{4, 2}, DealOptions{}, "f0 f1 *0+2/3 | f0 f1 *2+1/3"},
		{4, []int{4, 2}, DealOptions{}, "f0 f1 f2 f3 *0+2/3 | f0 f1 f2 f3 *2+1/3"},
		{4, []int{4, 2}, drop, "f0 f1 | f2 - f3"},
		{4, []int{4, 2}, unbalanced, "f0 f1 f3 | f2"},
		{6, []int{1, 1, 1}, DealOptions{}, "f0 f3 | f1 f4 | f2 f5"},
		{3, []int{3}, DealOptions{}, "f0 f1 f2"},

		// Nobody is left without a file.
		{1, []int{1, 1}, drop, "f0 *0+1/2 | f0 *1+1/2"},
		{1, []int{1, 1}, unbalanced, "f0 *0+1/2 | f0 *1+1/2"},
		{2, []int{2, 1}, unbalanced, "f0 f1 *0+2/3 | f0 f1 *2+1/3"},
		{0, []int{1, 1}, unbalanced, " *0+1/2 |  *1+1/2"},

		// Workers that feed nobody read for the shape.
		{2, []int{0, 1, 1}, DealOptions{}, "f0 | f0 | f1"},
		{2, []int{1, 0, 1}, DealOptions{}, "f0 | f0 | f1"},
	} {
		t.Run(fmt.Sprint(c.files, c.replicas, c.o), func(t *testing.T) {
			if got := dealt(t, listOf(c.files), c.replicas, c.o); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// readers counts who reads what: for each file of a list of files with the given numbers of samples, the readers of
// each of its samples. Names are unique.
func readers(t *testing.T, samples map[string]int, files []string, replicas []int, o DealOptions) (count map[string][]int, dropped []string) {
	t.Helper()
	count = map[string][]int{}
	for _, f := range files {
		count[f] = make([]int, samples[f])
	}
	for w, feeds := range replicas {
		s, err := Deal(files, replicas, w, o)
		if err != nil {
			t.Fatal(err)
		}
		if dropped == nil {
			dropped = s.Dropped
		} else if !slices.Equal(dropped, s.Dropped) {
			t.Errorf("workers do not agree on what is dropped: %v, %v", dropped, s.Dropped)
		}
		if len(files) > 0 && len(s.Files) == 0 {
			t.Errorf("worker %d has no file of %d", w, len(files))
		}
		if feeds == 0 {
			continue // what it reads is thrown away
		}
		index := 0
		for _, f := range s.Files {
			for i := range samples[f] {
				if s.Part.Has(index) {
					count[f][i]++
				}
				index++
			}
		}
	}
	return count, dropped
}

// checkDealing says what must hold for every way to deal.
func checkDealing(t *testing.T, samples map[string]int, files []string, replicas []int, o DealOptions) {
	t.Helper()
	count, dropped := readers(t, samples, files, replicas, o)
	for _, f := range files {
		want := 1
		if slices.Contains(dropped, f) {
			want = 0
		}
		for i, got := range count[f] {
			if got != want {
				t.Errorf("%d files, replicas %v, %+v: sample %d of %s has %d readers, not %d", len(files), replicas, o, i, f, got, want)
			}
		}
	}
	if len(dropped) > 0 && (!o.DropLast || o.Unbalanced || !slices.Equal(dropped, files[len(files)-len(dropped):])) {
		t.Errorf("%d files, replicas %v, %+v: dropped %v", len(files), replicas, o, dropped)
	}
}

func TestEverySampleHasOneReader(t *testing.T) {
	for workers := 1; workers <= 5; workers++ {
		for _, base := range []int{0, 1, 2, 3} {
			for _, step := range []int{0, 1, 2} {
				replicas := make([]int, workers)
				for w := range replicas {
					replicas[w] = base + w*step%3
				}
				if slices.Max(replicas) == 0 {
					continue
				}
				for n := 1; n <= 12; n++ {
					files, samples := listOf(n), map[string]int{}
					for i, f := range files {
						samples[f] = i*7%5 + 1
					}
					for _, o := range []DealOptions{{}, {DropLast: true}, {Unbalanced: true}, {DropLast: true, Unbalanced: true}} {
						checkDealing(t, samples, files, replicas, o)
					}
				}
			}
		}
	}
}

func FuzzDeal(f *testing.F) {
	f.Add(uint8(3), []byte{2, 2}, false, false)
	f.Add(uint8(4), []byte{4, 2}, true, false)
	f.Add(uint8(7), []byte{0, 3, 1}, false, true)
	f.Fuzz(func(t *testing.T, n uint8, feeds []byte, dropLast, unbalanced bool) {
		if len(feeds) == 0 || len(feeds) > 64 || slices.Max(feeds) == 0 {
			return
		}
		var replicas []int
		for _, b := range feeds {
			replicas = append(replicas, int(b))
		}
		files, samples := listOf(int(n)), map[string]int{}
		for i, file := range files {
			samples[file] = 1 + i%3
		}
		checkDealing(t, samples, files, replicas, DealOptions{dropLast, unbalanced})
	})
}

func TestWhatCannotBeDealtIsRefused(t *testing.T) {
	for _, c := range []struct {
		replicas []int
		worker   int
		want     string
	}{
		{[]int{1, 1}, 2, "epl: files are dealt to 2 workers, so there is none with index 2"},
		{[]int{1, 1}, -1, "none with index -1"},
		{nil, 0, "dealt to 0 workers"},
		{[]int{0, 0}, 0, "no worker feeds a model replica"},
		{[]int{1, -1}, 0, "worker 1 cannot feed -1 model replicas"},
	} {
		if _, err := Deal(listOf(2), c.replicas, c.worker, DealOptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("replicas %v, worker %d: got %v, want %q", c.replicas, c.worker, err, c.want)
		}
	}
}
