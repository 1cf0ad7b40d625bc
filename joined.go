// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"sync"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
	"github.com/easyparallel/epl/worker"
)

// joined are the jobs of several workers that this process takes part in, and the lines that joined them. A process is one
// worker of a job: a second Init would wait for workers that never come, or take the place of one. Environments that are alone
// do not meet anybody, and there may be many of them at the same time.
var joined struct {
	sync.Mutex
	at map[string]ir.Source // by where the workers meet
}

// joinOnce notes that this process joins a job, until the returned function is called.
func joinOnce(lookup func(string) (string, bool)) (left func(), err error) {
	url, _ := lookup(worker.EnvURL)
	joined.Lock()
	defer joined.Unlock()
	if at, twice := joined.at[url]; twice {
		return nil, errors.Errorf("epl: Init at %s: this process has joined the job of %s=%s already, at %s, and is one worker of it; "+
			"use that Env everywhere, or close it before", record.Here(), worker.EnvURL, url, at)
	}
	if joined.at == nil {
		joined.at = map[string]ir.Source{}
	}
	joined.at[url] = record.Here()
	return sync.OnceFunc(func() {
		joined.Lock()
		defer joined.Unlock()
		delete(joined.at, url)
	}), nil
}
