// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package wire makes connections that only the workers of one job can make, and cuts what travels on them into frames.
//
// # What goes in and what comes out
//
// [Listen] and [Dial] take the job's [Security] and return a [Conn]: a connection whose other end has proved that it
// knows the job's token, with the purpose that the dialer gave it. [ReadFrame] and [WriteFrame] then exchange messages on
// it; who wants bytes uses the connection itself, of which the handshake has read nothing too much.
//
// # The handshake
//
// The dialer sends a fresh nonce and the purpose, the listener a nonce of its own; then the dialer, and only then the
// listener, sends its EPL version with an HMAC-SHA256 keyed by the token over all of that and its role. So the token
// never travels, what was overheard proves nothing the next time, nobody can be made to answer its own question, and a
// stranger who dials learns nothing. Versions are compared when both sides are known: a different one is a [VersionError].
//
// A listener has a fixed number of places for those who have not proved who they are, see lobby: strangers who stay silent
// take them from each other, not from workers.
//
// Frames carry a CRC-32C, and the version of the protocol: one that was changed on its way is a [DamageError], one of
// another version is refused with the numbers of both.
//
// Without TLS the connections are authenticated when they are made, and neither secret nor protected against someone
// who can change packets on their way. With TLS ([LoadTLS]) they are both, and the HMAC covers the TLS session, so that
// nobody can sit in between, whatever certificates they have.
//
// # What it assumes
//
// That the token is random and long: who overhears a handshake can try tokens.
package wire
