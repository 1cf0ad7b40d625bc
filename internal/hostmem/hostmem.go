// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package hostmem is memory of a machine that a launcher holds for its workers: it outlives them, and is gone with the launcher, however that ends.
//
// A launcher makes a [Pool] of files that are nowhere but in memory, and hands it to its workers in a variable of their environment. Workers open it, and keep in it what
// the workers that are started after them may need.
package hostmem

import (
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// Env is the variable that tells a worker of the pool of its launcher.
const Env = "EPL_COPIES"

// Name is what tells a pool from those of other launchers, and where its files are.
type Name struct {
	// Began is the [Generation] of the worker that is told.
	Began int64
	ID    string
	Files []string
}

var started = time.Now().UnixNano()

// Generation tells generations of workers apart, and in which order they were, also those of a launcher that was started again: by when this process was started, and then by
// their number, whatever becomes of the clock.
func Generation(number int) int64 { return started + int64(number) }

// String is how a pool is written in [Env].
func (n Name) String() string {
	return strings.Join(append([]string{strconv.FormatInt(n.Began, 10), n.ID}, n.Files...), ",")
}

// Parse reads what String wrote.
func Parse(text string) (n Name, err error) {
	parts := strings.Split(text, ",")
	n.Began, err = strconv.ParseInt(parts[0], 10, 64)
	if err != nil || len(parts) < 3 {
		return n, errors.Errorf("epl: %s=%q is not what epl-launch writes; leave it unset", Env, text)
	}
	n.ID, n.Files = parts[1], parts[2:]
	return n, nil
}
