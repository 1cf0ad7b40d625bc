// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package config holds the typed configuration of EPL: its keys, where their values come from, and what is allowed.
//
// In go a map of keys "category.attribute" given by code and the process's environment; out comes a [Config] whose
// fields are all set and canonical, and which remembers where each value came from:
//
//	cfg, err := config.New(map[string]any{"pipeline.num_micro_batch": 4})
//	if err != nil {
//		return err // every problem at once, a sentence each
//	}
//	fmt.Println(cfg.Pipeline.NumMicroBatch, cfg.Communication.MaxSplits)
//
// A key takes its value from code, else from the environment variable EPL_<CATEGORY>_<ATTRIBUTE>, else its default.
// Nothing is ignored: an unknown key, a value out of its set and a value that could have no effect are errors.
//
// All that is known about a key stands in one row of the table in keys.go. Parsing, validation, the environment, the
// listing of the command "epl config" and the tables of docs/configuration.md derive from it; a test keeps the table
// and the struct fields the same. The package imports nothing of EPL, so every other package may import it.
package config
