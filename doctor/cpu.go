// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"go/version"
	"os/exec"
	"strconv"
	"strings"

	"github.com/easyparallel/epl/cpu/isa"
	"github.com/easyparallel/epl/internal/cores"
	"github.com/easyparallel/epl/internal/words"
)

// minGo is what go.mod asks for, firstSwitch the first Go that downloads another one for a module that needs it.
const (
	minGo       = "go1.26.5"
	firstSwitch = "go1.21"
)

func (s *System) goCommand() Finding {
	out, err := s.Run("go", "env", "GOVERSION", "GOTOOLCHAIN")
	if errors.Is(err, exec.ErrNotFound) {
		return ok("There is no go command here: programs that were built elsewhere run without it.")
	}
	if err != nil {
		return problem("go env", "The go command fails: %s.", lastLine(out))
	}
	lines := strings.Split(out, "\n")
	has := firstLine(strings.NewReplacer("-X:", " ", "-", " ").Replace(lines[0]))
	has, _, _ = strings.Cut(has, " ")
	chosen := ""
	if len(lines) > 1 {
		chosen = lines[1]
	}
	switch {
	case version.Compare(has, minGo) >= 0:
		return ok("%s builds EPL, which needs %s or later.", has, minGo)
	case version.Compare(has, firstSwitch) >= 0 && chosen != "local":
		return warning("", "%s is older than %s, and downloads that when it builds EPL.", has, minGo)
	}
	return problem("download it from https://go.dev/dl", "%s cannot build EPL, which needs %s or later.", has, minGo)
}

func (s *System) simd() Finding {
	best, err := s.ISA()
	if err != nil {
		return problem("unset "+isa.Env, "%s.", strings.TrimPrefix(err.Error(), "epl: "))
	}
	if best == isa.Portable {
		return warning("", "This CPU (%s) has neither AVX2 nor AVX-512, so the CPU engine runs portable kernels, which are slower.", s.Arch)
	}
	out, err := s.Run("go", "env", "GOEXPERIMENT")
	if err == nil && !strings.Contains(","+out+",", ",simd,") {
		return warning("go env -w GOEXPERIMENT=simd",
			"The CPU engine uses %s, but programs are built without GOEXPERIMENT=simd, so sums of collectives and GoMLX's own backend are slower.", best)
	}
	return ok("The CPU engine uses %s.", best)
}

func (s *System) cores() Finding {
	online := len(cores.Parse(s.read("sys/devices/system/cpu/online")))
	mine := len(cores.Parse(s.field("proc/self/status", "Cpus_allowed_list:")))
	if mine == 0 {
		return ok("The system does not say which cores there are.")
	}
	if text := s.env("GOMAXPROCS"); text != "" {
		if n, err := strconv.Atoi(text); err != nil || n > mine {
			return warning("unset GOMAXPROCS", "GOMAXPROCS=%s, but this process may use %s: more threads than cores slow down collectives.", text, words.Count(mine, "core"))
		}
	}
	quota, limited := s.quota()
	switch {
	case limited && quota < 1:
		return warning("raise the CPU limit of the container to at least 1 for each worker", "The control group allows %.2g of a core, so that workers stop several times a second.", quota)
	case limited && quota < float64(mine):
		return ok("%.3g of %s, as the control group allows.", quota, words.Count(max(online, mine), "core"))
	}
	return ok("%d of %s.", mine, words.Count(max(online, mine), "core"))
}

// quota is how many cores the control group allows at once.
func (s *System) quota() (n float64, limited bool) {
	fields := strings.Fields(s.group("cpu.max", "cpu", "cpu.cfs_quota_us"))
	if len(fields) == 1 { // version 1 has the period in a file of its own
		fields = append(fields, s.group("", "cpu", "cpu.cfs_period_us"))
	}
	if len(fields) != 2 {
		return 0, false
	}
	quota, err1 := strconv.ParseFloat(fields[0], 64)
	period, err2 := strconv.ParseFloat(fields[1], 64)
	return quota / period, err1 == nil && err2 == nil && quota > 0 && period > 0
}

func (s *System) numa() Finding {
	nodes := len(cores.Parse(s.read("sys/devices/system/node/online")))
	if nodes < 2 {
		return ok("One NUMA node.")
	}
	return ok("%d NUMA nodes: epl-launch -n %d keeps the threads of a worker on one processor.", nodes, nodes)
}

// fewBytes is what makes memory scarce.
const fewBytes = 1 << 30

func (s *System) memory() Finding {
	kB, err := strconv.ParseInt(strings.TrimSuffix(s.field("proc/meminfo", "MemAvailable:"), " kB"), 10, 64)
	if err != nil {
		return ok("The system does not say how much memory there is.")
	}
	free, by := kB<<10, "the machine"
	limit, err := strconv.ParseInt(s.group("memory.max", "memory", "memory.limit_in_bytes"), 10, 64)
	if err == nil && limit < free {
		free, by = limit, "the control group"
	}
	if space := s.limit("Max address space"); space >= 0 {
		return warning("ulimit -v unlimited", "The address space of processes is limited to %s: Go and XLA reserve more than they use.", size(space))
	}
	if free < fewBytes {
		return warning("end other processes, or raise the memory limit of the container", "%s of memory is left by %s.", size(free), by)
	}
	return ok("%s of memory, as %s allows.", size(free), by)
}

// size writes bytes for people.
func size(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return strconv.FormatFloat(float64(bytes)/(1<<30), 'f', 1, 64) + " GiB"
	case bytes >= 1<<20:
		return strconv.FormatInt(bytes>>20, 10) + " MiB"
	}
	return strconv.FormatInt(bytes>>10, 10) + " KiB"
}
