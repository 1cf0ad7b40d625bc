// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"log"
	"sync"
)

// notices are what a user should know of, and does not have to be told twice.
type notices struct {
	mu   sync.Mutex
	said map[string]bool // by kind
}

// Notice implements exec.Runner.
func (d *Runner) Notice(kind, sentence string, all bool) {
	if all && d.Job != nil && d.Job.Worker > 0 {
		return
	}
	d.notices.mu.Lock()
	defer d.notices.mu.Unlock()
	if !d.notices.said[kind] {
		if d.notices.said == nil {
			d.notices.said = map[string]bool{}
		}
		d.notices.said[kind] = true
		log.Print(sentence)
	}
}
