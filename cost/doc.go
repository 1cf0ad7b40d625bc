// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package cost estimates what the ops of a program cost: floating-point operations, bytes moved, bytes kept for
// backward, and time on devices and links.
//
// In go ops as recorded or lowered, of which it looks at attributes and shapes alone, and what devices and links can do: a [Profile] is a kind of device,
// a [Link] connects devices, and a [Cluster] has the devices of a job by rank. Out come the [Cost] of an op, the time of a segment on a device, and the time
// of a [Collective]. A dim that is known only when the program runs counts as 1.
package cost
