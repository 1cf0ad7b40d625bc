// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import "io"

// line is a line of a worker's output, without its end.
type line struct {
	Worker int
	Stream int // 1: standard output, 2: standard error
	Text   string
	// Update says that the line is not finished: it stands until the next line or update of the worker, as a progress bar
	// does. Those that are not shown are lost without harm.
	Update bool `json:",omitempty"`
}

// longestLine bounds what is kept of a line that does not end. What is longer is cut into several.
const longestLine = 64 << 10

// cutLines reads a stream to its end and hands it on line by line. A carriage return begins a line anew, as on a terminal:
// what stood there was an update, and only what stands at the end is the line.
func cutLines(r io.Reader, emit func(text string, update bool)) {
	var current []byte
	returned, progress := false, false // the last byte was a carriage return; this line has had one
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Read(buffer)
		for _, b := range buffer[:n] {
			if b == '\n' {
				emit(string(current), false)
				current, returned, progress = current[:0], false, false
				continue
			}
			if returned {
				if len(current) > 0 {
					emit(string(current), true)
				}
				current, returned, progress = current[:0], false, true
			}
			if b == '\r' {
				returned = true
				continue
			}
			if current = append(current, b); len(current) == longestLine {
				emit(string(current), false)
				current, progress = current[:0], false
			}
		}
		if err != nil {
			if len(current) > 0 {
				emit(string(current), false)
			}
			return
		}
		if progress && len(current) > 0 {
			emit(string(current), true)
		}
	}
}
