// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cores

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

func TestListsOfTheKernelAreReadAndWritten(t *testing.T) {
	for text, want := range map[string][]int{
		"0":          {0},
		"0-3,8\n":    {0, 1, 2, 3, 8},
		"1,3,5-6":    {1, 3, 5, 6},
		"":           nil,
		"none":       nil,
		"3-1":        nil,
		"0-99999999": nil,
	} {
		if got := Parse(text); !slices.Equal(got, want) {
			t.Errorf("%q is %v", text, got)
		}
	}
	for _, text := range []string{"", "0", "0-3,8", "1,3,5-6"} {
		if got := Text(Parse(text)); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

func TestAWorkerHasItsShareOfTheCores(t *testing.T) {
	for _, c := range []struct {
		name           string
		workers, procs int
		chosen         bool
		own, together  int
		want           int
	}{
		{"alone", 1, 8, false, 8, 8, 8},
		{"alone on a part of the machine", 1, 4, false, 4, 64, 4},
		{"on one core", 1, 1, false, 1, 1, 1},
		{"on many", 1, 64, false, 64, 64, 64},
		{"GOMAXPROCS is more than there are", 1, 64, true, 2, 2, 2},
		{"GOMAXPROCS is less", 1, 1, true, 2, 2, 1},
		{"several that nobody gave a part", 4, 8, false, 8, 8, 2},
		{"several in a container with a quota", 4, 8, false, 64, 64, 2},
		{"several that have a part each", 4, 2, false, 2, 8, 2},
		{"several that have uneven parts", 3, 3, false, 3, 8, 2},
		{"several that share parts, as by NUMA node", 4, 32, false, 32, 64, 16},
		{"several whose launcher set GOMAXPROCS", 4, 2, true, 8, 8, 2},
		{"several that the user gave all threads", 2, 2, true, 2, 2, 1},
		{"more than there are cores", 5, 2, false, 2, 2, 1},
	} {
		if got := share(c.workers, c.procs, c.chosen, c.own, c.together); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if n := Share(1); n < 1 || n > runtime.NumCPU() || Together() < runtime.NumCPU() || Online() < runtime.NumCPU() {
		t.Errorf("this process has %d cores of %d, and %d together of %d", n, runtime.NumCPU(), Together(), Online())
	}
}

func TestTheControlGroupSaysWhichCoresThereAre(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		file := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("job/cpuset.cpus.effective", "0-3\n")
	write("cpuset/job/cpuset.effective_cpus", "4-5\n")
	write("cpuset/cpuset.effective_cpus", "0-7\n")
	for groups, want := range map[string]string{
		"0::/job\n":                     "0-3",
		"3:cpu,cpuset:/job\n":           "4-5",
		"3:cpuset:/unseen\n":            "0-7",
		"1:memory:/job\n2:cpu:/job\n":   "",
		"0::/unseen\n":                  "",
		"no control groups at all, sir": "",
	} {
		if got := Text(read(cpusets(root, groups)...)); got != want {
			t.Errorf("%q: %q, want %q", groups, got, want)
		}
	}
}

func TestCoresAreDealtWholeAndToOneWorkerEach(t *testing.T) {
	each := func(c int) Place { return Place{Core: c} }
	pairs := func(c int) Place { return Place{Package: c % 8 / 4, Core: c % 8} } // 8 physical cores on 2 packages: c and c+8
	odd := func(c int) Place { return Place{Package: c % 2, Core: c} }
	for _, test := range []struct {
		all     string
		workers int
		place   func(int) Place
		want    string
	}{
		{"0-1", 1, each, "[0-1]"},
		{"0-1", 2, each, "[0 1]"},
		{"0-7", 3, each, "[0-1 2-4 5-7]"},
		{"2,5,9", 3, each, "[2 5 9]"},
		{"0-1", 4, each, "[0 0 1 1]"},
		{"0-1", 5, each, "[0 0 0 1 1]"},
		{"0-15", 2, pairs, "[0-3,8-11 4-7,12-15]"},
		{"0-15", 8, pairs, "[0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15]"},
		{"0-15", 16, pairs, "[0 8 1 9 2 10 3 11 4 12 5 13 6 14 7 15]"},
		{"0-15", 3, pairs, "[0-1,8-9 2-4,10-12 5-7,13-15]"},
		{"1,3,9", 2, pairs, "[1,9 3]"},
		{"0-3", 2, odd, "[0,2 1,3]"},
	} {
		var got []string
		for _, d := range Deal(Parse(test.all), test.workers, test.place) {
			got = append(got, Text(d))
		}
		if fmt.Sprint(got) != test.want {
			t.Errorf("%s to %d: %v, want %s", test.all, test.workers, got, test.want)
		}
	}
}

func TestThreadsOfOneCoreAreFound(t *testing.T) {
	root := t.TempDir()
	for file, text := range map[string]string{"thread_siblings_list": "2,66\n", "physical_package_id": "1\n"} {
		folder := filepath.Join(root, "cpu66", "topology")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if p := placeOf(root, 66); p != (Place{1, 2}) {
		t.Error(p)
	}
	if p := placeOf(root, 5); p != (Place{0, 5}) {
		t.Error("without a word of the kernel:", p)
	}
}

func TestAThreadCanBeBound(t *testing.T) {
	mine := Mine()
	if mine == nil {
		t.Skip("this system does not say which cores a process may use")
	}
	if len(mine) != runtime.NumCPU() {
		t.Errorf("%v, but Go knows of %d", mine, runtime.NumCPU())
	}
	done := make(chan []int)
	go func() {
		runtime.LockOSThread() // and it ends with the goroutine
		if err := Bind(mine[:1]); err != nil {
			t.Error(err)
		}
		done <- Mine()
	}()
	if bound := <-done; !slices.Equal(bound, mine[:1]) {
		t.Error("bound to", bound)
	}
}
