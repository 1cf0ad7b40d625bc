// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package capi

import "unsafe"

// The extension for profiles (PJRT_Extension_Type_Profiler) has headers of its own, of which this is what package pjrt uses. It is the same from version 1 of the
// extension on.

// ProfilerExtension is PJRT_Profiler_Extension.
type ProfilerExtension struct {
	Base ExtensionBase
	API  uintptr // PLUGIN_Profiler_Api
}

// ProfilerAPI is PLUGIN_Profiler_Api, up to version 1 of it.
type ProfilerAPI struct {
	StructSize   uintptr
	Priv         uintptr
	ErrorDestroy uintptr
	ErrorMessage uintptr
	ErrorGetCode uintptr
	Create       uintptr
	Destroy      uintptr
	Start        uintptr
	Stop         uintptr
	CollectData  uintptr
}

// ProfilerErrorArgs are the arguments of the function that frees an error.
type ProfilerErrorArgs struct {
	StructSize uintptr
	Priv       uintptr
	Error      uintptr
}

// SetSize says how much of the struct Go knows of.
func (s *ProfilerErrorArgs) SetSize() { s.StructSize = unsafe.Sizeof(*s) }

// ProfilerErrorMessageArgs are the arguments of the function that tells what an error says.
type ProfilerErrorMessageArgs struct {
	StructSize  uintptr
	Priv        uintptr
	Error       uintptr
	Message     unsafe.Pointer // char, out; it is the error's
	MessageSize uintptr
}

// SetSize says how much of the struct Go knows of.
func (s *ProfilerErrorMessageArgs) SetSize() { s.StructSize = unsafe.Sizeof(*s) }

// ProfilerCreateArgs are the arguments of the function that makes a profiler.
type ProfilerCreateArgs struct {
	StructSize  uintptr
	Options     unsafe.Pointer // char
	OptionsSize uintptr
	Profiler    uintptr // out
}

// SetSize says how much of the struct Go knows of.
func (s *ProfilerCreateArgs) SetSize() { s.StructSize = unsafe.Sizeof(*s) }

// ProfilerArgs are the arguments of the functions that start, stop and free a profiler.
type ProfilerArgs struct {
	StructSize uintptr
	Profiler   uintptr
}

// SetSize says how much of the struct Go knows of.
func (s *ProfilerArgs) SetSize() { s.StructSize = unsafe.Sizeof(*s) }

// ProfilerCollectDataArgs are the arguments of the function that returns what was collected.
type ProfilerCollectDataArgs struct {
	StructSize uintptr
	Profiler   uintptr
	Buffer     unsafe.Pointer // uint8, out, if it was null; it is the profiler's
	BufferSize uintptr
}

// SetSize says how much of the struct Go knows of.
func (s *ProfilerCollectDataArgs) SetSize() { s.StructSize = unsafe.Sizeof(*s) }
