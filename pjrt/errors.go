// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	stderrors "errors"
	"fmt"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// ErrClosed is the error of calls on objects that were closed.
var ErrClosed = errors.New("it is closed")

// ErrStillOpen is the error of closing a client or a plugin whose objects are still open.
var ErrStillOpen = errors.New("objects are still open")

// Code says what kind of error a plugin reports.
type Code int32

// The codes that callers decide by; the others are in absl's list of status codes.
const (
	InvalidArgument   = Code(capi.ErrorCodeINVALIDARGUMENT)
	DeadlineExceeded  = Code(capi.ErrorCodeDEADLINEEXCEEDED)
	NotFound          = Code(capi.ErrorCodeNOTFOUND)
	AlreadyExists     = Code(capi.ErrorCodeALREADYEXISTS)
	ResourceExhausted = Code(capi.ErrorCodeRESOURCEEXHAUSTED) // out of memory, as a rule
	Unimplemented     = Code(capi.ErrorCodeUNIMPLEMENTED)
	Internal          = Code(capi.ErrorCodeINTERNAL)
	Unavailable       = Code(capi.ErrorCodeUNAVAILABLE)
)

// String returns the name that absl gives the code.
func (c Code) String() string {
	if name, ok := capi.ErrorCodeNames[int32(c)]; ok {
		return name
	}
	return fmt.Sprintf("code %d", int32(c))
}

// Error is an error that the plugin reported.
type Error struct {
	Code    Code
	Message string // of the plugin
	Func    string // the C function that reported it
}

// Error returns the function, the code and the message.
func (e *Error) Error() string {
	return fmt.Sprintf("pjrt: %s: %s: %s", e.Func, e.Code, e.Message)
}

// VersionError refuses a plugin whose API this package cannot use.
type VersionError struct {
	Path         string // of the plugin
	Major, Minor int    // of its API
	Missing      string // a function that it lacks, or empty
}

// Error names the plugin, its version and the versions that would do.
func (e *VersionError) Error() string {
	text := fmt.Sprintf("pjrt: the plugin %s has PJRT API %d.%d", e.Path, e.Major, e.Minor)
	switch {
	case e.Missing != "":
		return text + fmt.Sprintf(" and lacks %s, which EPL needs: install another version of the plugin (EPL was written for %d.%d)", e.Missing, capi.Major, capi.Minor)
	case e.Major > capi.Major:
		return text + fmt.Sprintf(", which is newer than EPL knows (%d.x): use an older plugin or a newer EPL", capi.Major)
	}
	return text + fmt.Sprintf("; EPL needs %d.%d or newer (it was written for %d.%d): install a newer plugin", capi.Major, minMinor, capi.Major, capi.Minor)
}

// joined returns the errors that are not nil as one.
func joined(errs ...error) error { return stderrors.Join(errs...) }
