// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package transport is what the ways to move data have in common: what a transport gets, and what it has to promise.
//
// In goes a [Team], the ranks of a communicator by worker, and then one [Round] or [Call] after the other, whose arguments
// were checked. A transport implements [Engine]. What is wrong between workers it says with the errors of this package, so
// that all transports use the same words.
//
// A transport imports this package and the kernels, and no other transport. Package comm puts them together.
package transport
