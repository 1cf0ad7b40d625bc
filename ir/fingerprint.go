// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// Stable replaces what differs in every process, though the program is the same: the UUIDs that GoMLX puts into names.
func Stable(text string) string {
	const size, first = 36, 8 // of a UUID, and of what is before its first dash
	var w strings.Builder
	done := 0
	for at := 0; ; {
		dash := strings.IndexByte(text[at:], '-')
		if dash < 0 {
			break
		}
		dash += at
		at = dash + 1
		if start := dash - first; start >= done && start+size <= len(text) && isUUID(text[start:start+size]) {
			w.WriteString(text[done:start] + "…")
			done = start + size
			at = done
		}
	}
	if done == 0 {
		return text
	}
	w.WriteString(text[done:])
	return w.String()
}

// isUUID tells whether 36 bytes are a UUID in lower case.
func isUUID(s string) bool {
	for i := range len(s) {
		switch c := s[i]; i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// Fingerprint is the same for programs that compute the same in the same way, in this process and in others: it covers the text of
// the program without its name and the lines of the user, which change when a comment does.
func (p *Program) Fingerprint() string {
	const some = 1 << 16
	var w bytes.Buffer
	sum := sha256.New()
	write := func() {
		io.WriteString(sum, Stable(w.String())) // what it replaces is within a line
		w.Reset()
	}
	q := *p
	q.Name = ""
	q.write(&w, printer{bare: true, flush: func() {
		if w.Len() >= some {
			write()
		}
	}})
	write()
	return hex.EncodeToString(sum.Sum(nil)[:12])
}

// VariableNames are names of the variables that are the same in every process, and differ: their paths, with a number where
// these are equal but for what differs.
func (p *Program) VariableNames() []string {
	names, times := make([]string, len(p.Variables)), map[string]int{}
	for i, v := range p.Variables {
		names[i] = Stable(v.Path)
		if times[names[i]]++; times[names[i]] > 1 {
			names[i] += fmt.Sprintf("#%d", times[names[i]])
		}
	}
	return names
}
