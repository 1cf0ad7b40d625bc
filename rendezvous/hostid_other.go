// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package rendezvous

import "os"

// machineID is the machine's name: there is nothing better to tell machines apart by.
func machineID() string {
	name, _ := os.Hostname()
	return digest("machine", name)
}

func sharedMemory() uint64 { return 0 }
