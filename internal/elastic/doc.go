// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package elastic has no code, but tests that kill workers of real elastic jobs at random moments, and check that the jobs go on, and end
// with the weights of a run that nobody has disturbed. The long version:
//
//	go test ./internal/elastic -run Kill -v -timeout 1h -elastic.kills 25 -elastic.launchers 10
package elastic
