// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package serve lets workers read each other's variables, without the owner having to take part: it offers what can be
// read, and goes on.
//
// # What goes in and what comes out
//
// A [Server] has what this worker offers, by name and version, and answers on the connections that [Server.Handle] is
// given. [Fetch] asks at the other end of one, and fills a slice. A version that is not there yet is waited for, since
// the owner may be behind; one that is not there any more is an error at once. Data travel from the owner's memory to the
// reader's, however much they are, and are copied nowhere on the way.
//
// # What it promises
//
// A reader that dies, or stops to read, costs the owner nothing: what it read is released. An owner that dies is an
// error for its readers. Whatever arrives, at either end, does no harm.
//
// # What it assumes
//
// That whoever made the connections knows who is at the other end, as a rendezvous.Member does, and notices when bytes are
// changed on their way, as checked.Conn and TLS do.
package serve
