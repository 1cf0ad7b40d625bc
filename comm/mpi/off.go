// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !mpi

package mpi

import (
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// Available tells whether this program was built with MPI. Without it nothing else of this package is used.
const Available = false

// New returns no engine: no world can have joined MPI.
func New(*transport.Team) transport.Engine { return nil }

// Join says how to get MPI.
func Join(*transport.World) error {
	return errors.New(`epl: this program was built without MPI; build it with "-tags mpi" and cgo, or set communication.backend to auto`)
}

// Leave has nothing to end.
func Leave(*transport.World) {}

// Version names no MPI.
func Version() string { return "" }
