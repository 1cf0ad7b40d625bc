// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package checked finds out that bytes were changed on their way over a connection. TCP's own checksum has 16 bits, network
// cards compute it, and what a switch or a card changes before or after passes it; a changed weight then spreads to all
// workers, and shows up much later as a NaN.
//
// # What goes in and what comes out
//
// A stream is cut into records: a head of [HeadSize] bytes, and at most [MaxRecord] bytes of data. The head has the size of
// the data, their CRC-32C, for which processors have an instruction, and a CRC-32C of itself and the record's number: so a
// size that was changed is noticed before it is believed, and so is a record that was lost or came twice.
//
// [Sealer] and [Opener] make and read heads, for those who move the data themselves; [Conn] is a connection that does both.
// No byte of a record is handed out before all of it is known to be right.
//
// # What it assumes
//
// That nobody does it on purpose: who can change packets can change the CRC too. That is what TLS is for.
package checked
