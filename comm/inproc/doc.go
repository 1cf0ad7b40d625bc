// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package inproc lets the ranks of one worker communicate: they are goroutines of one process, and read and write each
// other's buffers directly. [Meeting] is where the ranks of a communicator meet. If the communicator has ranks of other
// workers too, the meeting gets a [transport.Engine] that reaches them, and calls it once for all of its own ranks.
//
// It assumes that calls were checked, and come in the order of their sequence numbers.
package inproc
