// Package procmem tells how much memory this process takes.
package procmem

import (
	"os"
	"strconv"
	"strings"
)

// Peak is the most memory that this process has had, in bytes, since it began or since [Reset]; 0 where the system does not say.
func Peak() int64 { return status("VmHWM:") }

// Now is the memory that this process has, in bytes; 0 where the system does not say.
func Now() int64 { return status("VmRSS:") }

// Reset makes the peak what the process has now. It is an error where the system cannot do that.
func Reset() error { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// status is a line of what the system says of this process.
func status(name string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err == nil {
				return n << 10
			}
		}
	}
	return 0
}
