// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package rootcause has no code, but a test that ends, stops and fails workers of real jobs, in every phase of a job, and
// looks whether the right one is named, how soon, and by whom. A short version runs with all tests; this is the long one,
// which prints a table:
//
//	go test ./internal/rootcause -run Drill -v -timeout 1h -drill.kills 100 -drill.stops 20
package rootcause
