// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package hybrid lets workers of several hosts communicate, some of which share a host: [New] makes the [transport.Engine] of
// a team from engines for the workers of one host and for those of different hosts. It moves no data itself.
package hybrid
