// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"fmt"

	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// Type is the type of a buffer's elements. The numbers are C's; GoMLX's dtypes have the same.
type Type int32

// The types of elements.
const (
	Bool      = Type(capi.BufferTypePRED)
	S8        = Type(capi.BufferTypeS8)
	S16       = Type(capi.BufferTypeS16)
	S32       = Type(capi.BufferTypeS32)
	S64       = Type(capi.BufferTypeS64)
	U8        = Type(capi.BufferTypeU8)
	U16       = Type(capi.BufferTypeU16)
	U32       = Type(capi.BufferTypeU32)
	U64       = Type(capi.BufferTypeU64)
	F16       = Type(capi.BufferTypeF16)
	F32       = Type(capi.BufferTypeF32)
	F64       = Type(capi.BufferTypeF64)
	BF16      = Type(capi.BufferTypeBF16)
	C64       = Type(capi.BufferTypeC64)
	C128      = Type(capi.BufferTypeC128)
	F8E5M2    = Type(capi.BufferTypeF8E5M2)
	F8E4M3FN  = Type(capi.BufferTypeF8E4M3FN)
	F8E8M0FNU = Type(capi.BufferTypeF8E8M0FNU)
	S4        = Type(capi.BufferTypeS4)
	U4        = Type(capi.BufferTypeU4)
	F4E2M1FN  = Type(capi.BufferTypeF4E2M1FN)
)

// String returns C's name of the type.
func (t Type) String() string {
	if name, ok := capi.BufferTypeNames[int32(t)]; ok {
		return name
	}
	return fmt.Sprintf("type %d", int32(t))
}

// Size returns the bytes of an element on the host. Elements of less than a byte take one there. It is 0 for types that have
// no elements.
func (t Type) Size() int {
	switch t {
	case S16, U16, F16, BF16:
		return 2
	case S32, U32, F32:
		return 4
	case S64, U64, F64, C64:
		return 8
	case C128:
		return 16
	case Type(capi.BufferTypeINVALID), Type(capi.BufferTypeTOKEN):
		return 0
	}
	return 1
}
