// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"
)

// TokenError says that the other side has another token: it belongs to another job, or is a stranger.
type TokenError struct{}

// Error implements error.
func (*TokenError) Error() string {
	return "epl: the other side has another token; EPL_TOKEN must be the same on all workers of a job, and differ between jobs"
}

// VersionError says that the other side knows the token, but is of another version of EPL.
type VersionError struct {
	Ours, Theirs string
	Purpose      string // of the connection
}

// Error implements error.
func (e *VersionError) Error() string {
	return fmt.Sprintf("epl: the other side is EPL %s, this is EPL %s; all workers of a job, and its launcher, must be of the same version",
		e.Theirs, e.Ours)
}

// TLSError says that TLS failed.
type TLSError struct{ Cause error }

// Error implements error.
func (e *TLSError) Error() string {
	return fmt.Sprintf("epl: TLS with the other side failed: %v; all workers of a job need TLS, with certificates of the same authority, or none", e.Cause)
}

// Unwrap returns the cause.
func (e *TLSError) Unwrap() error { return e.Cause }

// protocolVersionError says that frames of another version arrived.
type protocolVersionError struct{ other int }

// Error implements error.
func (e *protocolVersionError) Error() string {
	return fmt.Sprintf("epl: the other side speaks version %d of EPL's protocol, this is version %d; all workers of a job must be of the same version",
		e.other, protocolVersion)
}

// DialError says whom a connection was for, and why there is none.
type DialError struct {
	Addr  string
	Cause error
}

// Error implements error.
func (e *DialError) Error() string {
	return fmt.Sprintf("epl: cannot connect to %s: %s", e.Addr, strings.TrimPrefix(e.Cause.Error(), "epl: "))
}

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Cause }
