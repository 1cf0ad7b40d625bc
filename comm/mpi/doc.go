// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package mpi lets workers communicate by MPI, in programs that are built with the tag "mpi" and cgo: [Join] takes a world's
// worker into MPI, [New] makes the [transport.Engine] of a team, [Leave] ends it. In other programs [Available] is false, and
// the rest does nothing. Nothing outside of this package is built differently with the tag.
//
// It assumes that mpirun has started the workers, in their order.
package mpi
