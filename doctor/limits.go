// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"strconv"
)

// sharedMemory looks at whether workers may read and write each other's memory, which copies large values once and not twice (comm/shm).
func (s *System) sharedMemory() Finding {
	const key = "kernel.yama.ptrace_scope"
	scope := s.read("proc/sys/kernel/yama/ptrace_scope")
	const ptrace = 19 // CAP_SYS_PTRACE
	capabilities, _ := strconv.ParseUint(s.field("proc/self/status", "CapEff:"), 16, 64)
	switch {
	case s.OS != "linux":
		return warning("", "Workers of one machine communicate by TCP: memory is shared on Linux only.")
	case scope != "" && scope != "0" && capabilities>>ptrace&1 == 0:
		return warning("sudo sysctl "+key+"=0", "%s is %s: workers of this machine cannot read and write each other's memory, so they copy large values twice.", key, scope)
	}
	return ok("Workers of this machine can share memory, and read and write each other's.")
}

// smallShm is less than NCCL needs on machines with several GPUs. Docker gives a container 64 MiB.
const smallShm = 1 << 30

// devShm looks at what NCCL uses. EPL itself shares memory without files.
func (s *System) devShm() Finding {
	bytes, err := s.Size(filepath.Join(s.Root, "dev/shm"))
	gpus := s.gpus() > 0
	switch {
	case !gpus && err != nil:
		return ok("There is no /dev/shm, which only NCCL needs.")
	case !gpus:
		return ok("%s; only NCCL needs it.", size(bytes))
	case err != nil:
		return problem("mount -t tmpfs tmpfs /dev/shm", "There is no /dev/shm, which NCCL needs between the GPUs of a machine.")
	case bytes < smallShm:
		return warning("docker run --shm-size=8g …; in Kubernetes an emptyDir with medium: Memory at /dev/shm",
			"/dev/shm has %s, which is too little for NCCL on many GPUs.", size(bytes))
	}
	return ok("%s for NCCL.", size(bytes))
}

// A worker has a few files for each other worker.
const fewFiles, tooFewFiles = 4096, 256

// openFiles looks at the hard limit: Go raises the other one by itself.
func (s *System) openFiles() Finding {
	const fix = "ulimit -n 65536 as root, or LimitNOFILE=65536 for a service, or a line in /etc/security/limits.conf"
	switch n := s.limit("Max open files"); {
	case n < 0:
		return ok("The number of open files is not limited, or not known.")
	case n < tooFewFiles:
		return problem(fix, "A process may open %d files: a worker has connections to all others, and opens files of data and checkpoints.", n)
	case n < fewFiles:
		return warning(fix, "A process may open %d files, which is too few for jobs of hundreds of workers.", n)
	default:
		return ok("A process may open %d files.", n)
	}
}

func (s *System) processes() Finding {
	const few = 1024
	switch n := s.limit("Max processes"); {
	case n < 0:
		return ok("The number of processes and threads is not limited, or not known.")
	case n < few:
		return warning("ulimit -u 65536 as root, or a line in /etc/security/limits.conf", "The user may have %d processes and threads: each worker has one for each core, and more.", n)
	default:
		return ok("The user may have %d processes and threads.", n)
	}
}

// lockedMemory matters where a network card reads and writes the memory of processes.
func (s *System) lockedMemory() Finding {
	cards, _ := os.ReadDir(filepath.Join(s.Root, "sys/class/infiniband")) // there is none on most machines
	n := s.limit("Max locked memory")
	switch {
	case n < 0:
		return ok("Memory that a process locks is not limited, or the limit is not known.")
	case len(cards) > 0:
		return problem("ulimit -l unlimited as root, or LimitMEMLOCK=infinity for sshd and slurmd", "A process may lock %s: MPI and NCCL over InfiniBand (%s) need more.", size(n), cards[0].Name())
	}
	return ok("A process may lock %s; more is needed only over InfiniBand, and there is none.", size(n))
}
