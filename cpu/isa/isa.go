// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package isa tells which instructions the kernels of the CPU engine use: the best that the CPU has, unless the environment
// chooses others.
package isa

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/pkg/errors"
)

// Env is the environment variable that chooses a level by its word. It is read when the program starts.
const Env = "EPL_CPU_ISA"

// Level is an instruction set, as far as kernels care.
type Level int

// The levels; each has what those before it have.
const (
	Portable Level = iota // Go
	AVX2                  // with FMA
	AVX512                // F, BW, DQ and VL
)

var (
	names = []string{Portable: "portable", AVX2: "AVX2", AVX512: "AVX-512"}
	words = []string{Portable: "portable", AVX2: "avx2", AVX512: "avx512"}
)

// String returns the level's name.
func (l Level) String() string {
	if l >= 0 && int(l) < len(names) {
		return names[l]
	}
	return fmt.Sprintf("level %d", int(l))
}

// parse finds the level that a word means, on a CPU whose best level is best. No word is the best.
func parse(word string, best Level) (Level, error) {
	if strings.TrimSpace(word) == "" {
		return best, nil
	}
	for l, w := range words {
		if !strings.EqualFold(strings.TrimSpace(word), w) {
			continue
		}
		if Level(l) > best {
			return best, errors.Errorf("epl: %s=%s: this CPU has no %s; it has %s: use one of these, or unset it", Env, word, Level(l), list(best))
		}
		return Level(l), nil
	}
	return best, errors.Errorf("epl: %s=%s: there is no such instruction set; this CPU has %s: use one of these, or unset it", Env, word, list(best))
}

// list names the levels up to the best one.
func list(best Level) string { return strings.Join(words[:best+1], ", ") }

// atStart is what the environment chose when the program started; where its choice is wrong, the best level.
var atStart, _ = parse(os.Getenv(Env), Best())

// The level in use, and who must know when it changes.
var (
	mu      sync.Mutex
	current = atStart
	users   []func(Level)
)

// Check returns what is wrong with the choice of the environment.
func Check() error {
	word := os.Getenv(Env)
	l, err := parse(word, Best())
	if err == nil && l != atStart {
		err = errors.Errorf("epl: %s was changed to %q after the program had started, which uses %s: set it before", Env, word, words[atStart])
	}
	return err
}

// Current is the level in use.
func Current() Level {
	mu.Lock()
	defer mu.Unlock()
	return current
}

// OnUse calls f with the level in use, and whenever that changes: a package of kernels lets it choose its kernels.
func OnUse(f func(Level)) {
	mu.Lock()
	defer mu.Unlock()
	users = append(users, f)
	f(current)
}

// Use changes the level for all programs of this process, and returns the one before. It is for tests: nothing may be
// compiled or run meanwhile, and a program must run at the level that it was compiled at.
func Use(l Level) (before Level) {
	mu.Lock()
	defer mu.Unlock()
	if l < Portable || l > Best() {
		panic(fmt.Sprintf("epl: this CPU has no %s", l))
	}
	before, current = current, l
	for _, f := range users {
		f(l)
	}
	return before
}
