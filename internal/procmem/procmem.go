// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package procmem tells how much memory and time this process takes.
package procmem

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// Peak is the most memory that this process has had, in bytes, since it began or since [Reset]; 0 where the system does not say.
func Peak() int64 { return status("VmHWM:") }

// Now is the memory that this process has, in bytes; 0 where the system does not say.
func Now() int64 { return status("VmRSS:") }

// Reset makes the peak what the process has now. It is an error where the system cannot do that.
func Reset() error { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// CPU is how long all threads of this process have computed, to a hundredth of a second; 0 where the system does not say.
func CPU() (all time.Duration) {
	text, _ := os.ReadFile("/proc/self/stat")
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // behind the name, from the third on
	if len(fields) < 13 {
		return 0
	}
	for _, ticks := range fields[11:13] { // in programs and in the system
		n, _ := strconv.ParseInt(ticks, 10, 64)
		all += time.Duration(n) * 10 * time.Millisecond
	}
	return all
}

// Disk is how many bytes were read from disks for this process: what was in the page cache does not count. 0 where the system does not say.
func Disk() int64 { return line("/proc/self/io", "read_bytes:") }

// status is a line of what the system says of this process, in bytes.
func status(name string) int64 { return line("/proc/self/status", name) << 10 }

// line is the number in a line of a file; 0 if there is none.
func line(file, name string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return n
		}
	}
	return 0
}
