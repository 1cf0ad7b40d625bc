// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package capi holds the structs, enums and function positions of the PJRT C API, as its header declares them. All but this
// file is generated; a test compares the sizes and offsets of the structs with those that a C compiler gives them. It knows
// nothing of plugins: package pjrt calls them, package pjrttest pretends to be one.
//
// Handles of C are uintptr. Fields that may point to memory are unsafe.Pointer, so that memory of Go stays alive as long as
// the struct does.
package capi

import (
	"fmt"
	"unsafe"
)

//go:generate go run ../../../internal/pjrtgen

// Func is the position of a function in the table of PJRT_Api.
type Func int

// NumFuncs is the length of the header's table.
const NumFuncs = len(functionNames)

// String returns the C name.
func (f Func) String() string {
	if f < 0 || int(f) >= len(functionNames) {
		return fmt.Sprintf("function %d", int(f))
	}
	return functionNames[f]
}

// Head is the start of PJRT_Api. The functions follow it.
type Head struct {
	StructSize     uintptr
	ExtensionStart uintptr
	Version        ApiVersion
}

// The extension for copies between processes (PJRT_Extension_Type_CrossHostTransfers) has a header of its own, of which this
// is the part that package pjrt uses: the positions of two functions after ExtensionBase, and their arguments. They are the same
// from version 2 of the extension on, up to 6; version 1 lacks the functions. Ids of devices are of 32 or 64 bits: package pjrt
// passes lists of one element, which read the same.
const (
	CrossHostReceive = 2
	CrossHostSend    = 3
)

// CrossHostSendArgs are the arguments of the function that sends. All lists have NumBuffers elements.
type CrossHostSendArgs struct {
	StructSize         uintptr
	ExtensionStart     uintptr
	Client             uintptr
	NumBuffers         uintptr
	Buffers            unsafe.Pointer // PJRT_Buffer*
	DstGlobalDeviceIds unsafe.Pointer // int32 or int64
	TransferKeys       unsafe.Pointer // int64
	Events             unsafe.Pointer // PJRT_Event*, out
}

// SetSize says how much of the struct Go knows of.
func (s *CrossHostSendArgs) SetSize() { s.StructSize = unsafe.Sizeof(*s) }

// CrossHostReceiveArgs are the arguments of the function that receives. All lists have NumShapes elements.
type CrossHostReceiveArgs struct {
	StructSize         uintptr
	ExtensionStart     uintptr
	Client             uintptr
	NumShapes          uintptr
	ShapeNumDims       unsafe.Pointer // size_t
	Dims               unsafe.Pointer // const int64*
	ElementTypes       unsafe.Pointer // PJRT_Buffer_Type
	Layouts            unsafe.Pointer // PJRT_Buffer_MemoryLayout*, or null
	Device             uintptr
	SrcGlobalDeviceIds unsafe.Pointer // int32 or int64
	TransferKeys       unsafe.Pointer // int64
	Buffers            unsafe.Pointer // PJRT_Buffer*, out
}

// SetSize says how much of the struct Go knows of.
func (s *CrossHostReceiveArgs) SetSize() { s.StructSize = unsafe.Sizeof(*s) }
