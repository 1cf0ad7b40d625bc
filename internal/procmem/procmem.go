// Package procmem tells how much memory this process takes.
package procmem

import (
	"os"
	"strconv"
	"strings"
)

// Peak is the most memory that this process has had, in bytes; 0 where the system does not say.
func Peak() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err == nil {
				return n << 10
			}
		}
	}
	return 0
}
