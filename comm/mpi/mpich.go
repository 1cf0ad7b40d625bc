// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build mpi && mpich

package mpi

// For machines that have both, and Open MPI is the one that "mpi" means.

// #cgo pkg-config: mpich
import "C"
