// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build mpi && !mpich

package mpi

// What "mpi" means is Debian's choice, see update-alternatives --config mpi: Open MPI, or MPICH if only that is installed.

// #cgo pkg-config: mpi
import "C"
