// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package cores tells which cores a process and its machine have, and deals them to workers.
//
// A core is what the operating system calls a CPU: a hyperthread is one of its own, as it is for Go's GOMAXPROCS.
package cores

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Parse reads a list of the kernel's, such as "0-3,8". What is no such list has no cores.
func Parse(list string) (all []int) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA != nil || errB != nil || a < 0 || b > 1<<20 {
			continue
		}
		for c := a; c <= b; c++ {
			all = append(all, c)
		}
	}
	return all
}

// Text writes a list as the kernel does. The cores are in order.
func Text(all []int) string {
	var parts []string
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		part := strconv.Itoa(all[i])
		if j > i {
			part += "-" + strconv.Itoa(all[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// Online is how many cores the machine has, whoever may use them.
var Online = sync.OnceValue(func() int { return max(len(read("/sys/devices/system/cpu/online")), runtime.NumCPU()) })

// Together is how many cores the processes of this machine, or of this container, may use together: what a launcher
// gives to one of them may be less.
var Together = sync.OnceValue(func() int {
	groups, _ := os.ReadFile("/proc/self/cgroup")
	if n := len(read(cpusets("/sys/fs/cgroup", string(groups))...)); n > 0 {
		return max(n, runtime.NumCPU())
	}
	return Online()
})

// cpusets are the files that may say which cores the control group of this process has: those of both versions of control
// groups, of the group itself or, in a container that sees only itself, of the root.
func cpusets(root, groups string) (files []string) {
	for line := range strings.Lines(groups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch path := fields[2]; {
		case fields[0] == "0":
			files = append(files, filepath.Join(root, path, "cpuset.cpus.effective"), filepath.Join(root, "cpuset.cpus.effective"))
		case slices.Contains(strings.Split(fields[1], ","), "cpuset"):
			files = append(files, filepath.Join(root, "cpuset", path, "cpuset.effective_cpus"), filepath.Join(root, "cpuset", "cpuset.effective_cpus"))
		}
	}
	return files
}

// read is the list in the first of the files that has one.
func read(files ...string) []int {
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			if list := Parse(string(text)); len(list) > 0 {
				return list
			}
		}
	}
	return nil
}

// Share is how many cores this process has for threads, as one of so many workers on its machine.
func Share(workers int) int {
	_, chosen := os.LookupEnv("GOMAXPROCS")
	return share(workers, runtime.GOMAXPROCS(0), chosen, runtime.NumCPU(), Together())
}

// share is Share of a process that runs on own cores of those that there are together. procs is GOMAXPROCS, and chosen tells
// that somebody set it.
func share(workers, procs int, chosen bool, own, together int) int {
	if !chosen && own >= together {
		procs /= workers // it has not been given a part yet: the limit, of a container perhaps, is for all
	}
	return max(1, min(procs, own, together/workers))
}
