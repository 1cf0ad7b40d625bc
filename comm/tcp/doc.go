// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package tcp lets workers communicate over connections, which the mesh of their world makes: [New] and [NewBetween] make the
// [transport.Engine] of a team.
//
// It assumes nothing about the connections: one that breaks, changes bytes or carries something else is an error that names
// the worker at its other end.
package tcp
