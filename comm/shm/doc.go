// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package shm lets the workers of one host communicate through memory that they share: [New] makes the [transport.Engine] of
// a team, [Heap] gives out memory that all of them can reach.
//
// It assumes Linux, and that the workers see each other's processes. Where that does not hold, the engine uses the one that
// it was given to stand in.
package shm
