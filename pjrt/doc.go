// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package pjrt is EPL's binding of the PJRT C API, by which XLA compiles and runs programs on GPUs. It needs no cgo.
//
// What goes in: a plugin (a shared library; [Find] looks for it), programs as StableHLO text or bytecode, and bytes of the
// host. What comes out: compiled programs, buffers on devices, events, and bytes. The package knows nothing of EPL's
// programs, plans or placements, and decides nothing: it is the C API with Go's types, errors and ownership.
//
// # Ownership
//
// Who makes an object closes it: [Client], [Executable], [Buffer], [Event] and [HostMapping] have Close. No finalizer calls
// C, so a forgotten object is a leak, and [Client.Close] refuses and names the objects that are still open. [Device] and
// [Memory] belong to their client. The order is: objects, then their client, then the plugin; a wrong order is an error, not
// a crash. Close does not wait for the device: C keeps what an execution under way still needs. A closed object returns
// [ErrClosed]; a call that is under way in another goroutine finishes first. A second Close does nothing.
//
// A donated buffer has lost its memory, but is still to be closed.
//
// # Concurrency
//
// All methods may be called from any goroutine. [Executable.Execute] and the copies are asynchronous: they return once the
// work is enqueued, and XLA orders what depends on each other. Calls that wait, such as [Client.Compile] and [Event.Wait],
// occupy an OS thread meanwhile.
//
// # Memory of Go
//
// C never keeps a pointer into Go's memory longer than the package pins it: until the call returns, or, for asynchronous
// copies, until the event that the copy returned is ready. The caller must not write to such a slice before (nor read, for
// [Buffer.ToHost]).
//
// # Versions
//
// The package is generated from the header of API version 0.104. A newer plugin works, because every struct says how
// much of it Go knows. A plugin that is too old or lacks a function that the package needs is refused by [Load].
//
// Tests without a GPU use the plugin of package pjrttest, which is made of Go functions.
package pjrt
