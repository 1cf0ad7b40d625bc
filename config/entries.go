// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Entry is one key of a [Config] as data for listings.
type Entry struct {
	Key       string `json:"key"`        // "category.attribute"
	Type      string `json:"type"`       // "int", "bool", "string", "bytes", "duration" or `"dynamic" or number`
	Default   string `json:"default"`    // as text that New accepts
	Value     string `json:"value"`      // as text that New accepts
	Source    Source `json:"source"`     // where Value came from
	Allowed   string `json:"allowed"`    // completes "the value must be …"
	Doc       string `json:"doc"`        // what the key does
	Variable  string `json:"variable"`   // the environment variable that sets it
	Original  bool   `json:"original"`   // a key of the original EPL, with its name and default
	PerWorker bool   `json:"per_worker"` // may differ between the workers of a job
}

// Changed says whether the value differs from the default, wherever it came from.
func (e Entry) Changed() bool { return e.Value != e.Default }

// Entries returns every key, category by category.
func (c *Config) Entries() []Entry {
	entries := make([]Entry, len(keys))
	for i := range keys {
		entries[i] = c.entry(&keys[i])
	}
	return entries
}

// Entry returns one key; the error for an unknown one names the nearest.
func (c *Config) Entry(key string) (Entry, error) {
	k, err := lookup(key)
	if err != nil {
		return Entry{}, err
	}
	return c.entry(k), nil
}

func (c *Config) entry(k *key) Entry {
	return Entry{
		Key:       k.name,
		Type:      k.typ.name(),
		Default:   k.typ.format(k.def),
		Value:     k.typ.format(k.get(c)),
		Source:    c.source(k),
		Allowed:   k.typ.allowed(),
		Doc:       k.doc,
		Variable:  k.variable(),
		Original:  !k.ours,
		PerWorker: k.perWorker,
	}
}

// Get returns the value of a key with its field's type: bool, int, int64, string, time.Duration or [LossScale].
func (c *Config) Get(key string) (any, error) {
	k, err := lookup(key)
	if err != nil {
		return nil, err
	}
	return k.get(c), nil
}

// String lists the keys whose value differs from the default, a line "key = value (from source)" each.
func (c *Config) String() string {
	var lines []string
	for i := range keys {
		k := &keys[i]
		if value := k.get(c); value != k.def {
			lines = append(lines, fmt.Sprintf("%s = %s (from %s)", k.name, k.show(value), c.source(k)))
		}
	}
	if len(lines) == 0 {
		return "every key has its default"
	}
	return strings.Join(lines, "\n")
}

// Canonical lists every key, a line "key=value" each, in the order of [Config.Entries] and without sources. Equal
// texts mean equal configurations; each line is what [New] and "epl config --set" accept.
func (c *Config) Canonical() string {
	return c.canonical(func(*key) bool { return true })
}

// Hash identifies the configuration that the workers of a job must agree on: it covers all lines of
// [Config.Canonical] but those of keys that may differ between workers.
func (c *Config) Hash() string {
	sum := sha256.Sum256([]byte(c.canonical(func(k *key) bool { return !k.perWorker })))
	return hex.EncodeToString(sum[:])
}

func (c *Config) canonical(include func(*key) bool) string {
	var b strings.Builder
	for i := range keys {
		if k := &keys[i]; include(k) {
			fmt.Fprintf(&b, "%s=%s\n", k.name, k.typ.format(k.get(c)))
		}
	}
	return b.String()
}
