// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// processor is its name, as Linux says it.
func processor() string {
	if name := field("/proc/cpuinfo", "model name"); name != "" {
		return name
	}
	return runtime.GOARCH
}

// memory is that of the machine, in bytes, as Linux says it; 0: it is not known.
func memory() int64 {
	kilobytes, _, _ := strings.Cut(field("/proc/meminfo", "MemTotal"), " ")
	n, err := strconv.ParseInt(kilobytes, 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// field is what a file of the kernel says of something: "MemTotal:  16 kB".
func field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
