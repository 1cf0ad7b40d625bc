// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"os"
	"strings"
	"syscall"
)

// machineID is equal for processes that reach each other by the loopback interface: same boot, same network namespace.
func machineID() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, _ := os.Readlink("/proc/self/ns/net")
	return digest("machine", strings.TrimSpace(string(boot)), network)
}

// sharedMemory tells apart the places for shared memory of a machine: containers have their own.
func sharedMemory() uint64 {
	var stat syscall.Stat_t
	if syscall.Stat("/dev/shm", &stat) != nil {
		return 0
	}
	return uint64(stat.Dev)
}
