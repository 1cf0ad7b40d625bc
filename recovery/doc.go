// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package recovery keeps copies of the variables of a job in memory that outlives its workers, so that those that are started after a failure go on from the last
// step and not from a checkpoint.
//
// What goes in are pieces (package state) and their bytes, after every step. What comes out is a checkpoint (package checkpoint) that is in memory. It knows no store, device or
// job: package epl connects it with these.
//
// # In memory
//
// A launcher holds files that are nowhere but in memory (internal/hostmem). A worker has two of them, one for a step and one for the step after it: a [Slot] each, which
// is overwritten when the other one is complete on all workers. So there is a step that is complete everywhere at any moment, once there was one. Files of a slot:
//
//	0      header: generation, step, worker, layout, where the rest is, its checksum, and a checksum of the header itself
//	4096   data: the pieces, one after the other
//	…      table: the pieces, as JSON; checksums of their blocks; the manifest, as JSON
//
// # When is it complete
//
// The header is written last, and overwritten by zeros before anything else changes. A worker that is killed in between leaves a slot that [Open] does not find
// complete; whatever else happens to the bytes is found by the checksums, which are those of a checkpoint.
//
// A step is complete if its slots, of one generation, have all elements of all variables: see [checkpoint.Assemble]. Slots of different generations are never put together:
// their plans may differ.
package recovery
