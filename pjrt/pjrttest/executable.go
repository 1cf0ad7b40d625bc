// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrttest

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/internal/capi"
)

func executableFunctions(table []uintptr) {
	set(table, capi.LoadedExecutableGetExecutable, func(f *Fake, a *capi.LoadedExecutableGetExecutableArgs) *pjrt.Error {
		x, err := of[*loaded](f, a.LoadedExecutable)
		if err != nil {
			return err
		}
		d := &description{of: x}
		for _, o := range x.program.Outputs {
			kind, n := f.text(o.MemoryKind)
			d.types, d.dims, d.ranks = append(d.types, int32(o.Type)), append(d.dims, o.Dims...), append(d.ranks, uintptr(len(o.Dims)))
			d.kinds, d.sizes = append(d.kinds, uintptr(kind)), append(d.sizes, n)
		}
		a.Executable = f.add(d)
		return nil
	})
	set(table, capi.ExecutableName, func(f *Fake, a *capi.ExecutableNameArgs) *pjrt.Error {
		x, err := of[*description](f, a.Executable)
		if err == nil {
			a.ExecutableName, a.ExecutableNameSize = f.text(x.of.text)
		}
		return err
	})
	set(table, capi.ExecutableNumOutputs, func(f *Fake, a *capi.ExecutableNumOutputsArgs) *pjrt.Error {
		x, err := of[*description](f, a.Executable)
		if err == nil {
			a.NumOutputs = uintptr(len(x.types))
		}
		return err
	})
	set(table, capi.ExecutableOutputElementTypes, func(f *Fake, a *capi.ExecutableOutputElementTypesArgs) *pjrt.Error {
		x, err := of[*description](f, a.Executable)
		if err == nil {
			a.OutputTypes, a.NumOutputTypes = unsafe.Pointer(unsafe.SliceData(x.types)), uintptr(len(x.types))
		}
		return err
	})
	set(table, capi.ExecutableOutputDimensions, func(f *Fake, a *capi.ExecutableOutputDimensionsArgs) *pjrt.Error {
		x, err := of[*description](f, a.Executable)
		if err == nil {
			a.Dims, a.DimSizes, a.NumOutputs = unsafe.Pointer(unsafe.SliceData(x.dims)), unsafe.Pointer(unsafe.SliceData(x.ranks)), uintptr(len(x.ranks))
		}
		return err
	})
	set(table, capi.ExecutableOutputMemoryKinds, func(f *Fake, a *capi.ExecutableOutputMemoryKindsArgs) *pjrt.Error {
		x, err := of[*description](f, a.Executable)
		if err == nil {
			a.MemoryKinds, a.MemoryKindSizes, a.NumOutputs = unsafe.Pointer(unsafe.SliceData(x.kinds)), unsafe.Pointer(unsafe.SliceData(x.sizes)), uintptr(len(x.kinds))
		}
		return err
	})
	set(table, capi.ExecutableGetCompiledMemoryStats, func(f *Fake, a *capi.ExecutableGetCompiledMemoryStatsArgs) *pjrt.Error {
		x, err := of[*description](f, a.Executable)
		if err == nil {
			s := x.of.stats
			a.PeakMemoryInBytes, a.ArgumentSizeInBytes, a.OutputSizeInBytes, a.AliasSizeInBytes = s.Peak, s.Arguments, s.Outputs, s.Aliased
			a.TempSizeInBytes, a.GeneratedCodeSizeInBytes = s.Temporary, s.Code
			a.HostArgumentSizeInBytes, a.HostOutputSizeInBytes, a.HostAliasSizeInBytes, a.HostTempSizeInBytes = s.HostArguments, s.HostOutputs, s.HostAliased, s.HostTemporary
		}
		return err
	})
	set(table, capi.ExecutableOptimizedProgram, func(f *Fake, a *capi.ExecutableOptimizedProgramArgs) *pjrt.Error {
		x, err := of[*description](f, a.Executable)
		if err != nil {
			return err
		}
		program := (*capi.Program)(a.Program)
		if err := checkSize(program); err != nil {
			return err
		}
		code := "optimized: " + x.of.text
		if f.options.Optimized != nil {
			code = string(f.options.Optimized(x.of.text))
		}
		if program.Code != nil {
			copy(array[byte](program.Code, program.CodeSize), code)
		}
		program.CodeSize = uintptr(len(code))
		program.Format, program.FormatSize = f.text("hlo")
		return nil
	})
	set(table, capi.ExecutableSerialize, func(f *Fake, a *capi.ExecutableSerializeArgs) *pjrt.Error {
		x, err := of[*description](f, a.Executable)
		if err == nil {
			s := &serialized{[]byte("compiled: " + x.of.text)}
			a.SerializedExecutable, a.SerializedExecutableDeleter = f.add(s), deleteSerialized()
			a.SerializedBytes, a.SerializedBytesSize = unsafe.Pointer(&s.text[0]), uintptr(len(s.text))
		}
		return err
	})
	set(table, capi.LoadedExecutableAddressableDevices, func(f *Fake, a *capi.LoadedExecutableAddressableDevicesArgs) *pjrt.Error {
		x, err := of[*loaded](f, a.Executable)
		if err == nil {
			a.AddressableDevices, a.NumAddressableDevices = unsafe.Pointer(unsafe.SliceData(x.list)), uintptr(len(x.list))
		}
		return err
	})
	set(table, capi.ExecutableDestroy, func(f *Fake, a *capi.ExecutableDestroyArgs) *pjrt.Error {
		return free[*description](f, a.Executable)
	})
	set(table, capi.LoadedExecutableDestroy, func(f *Fake, a *capi.LoadedExecutableDestroyArgs) *pjrt.Error {
		return free[*loaded](f, a.Executable)
	})
	set(table, capi.LoadedExecutableExecute, execute)
}

func execute(f *Fake, a *capi.LoadedExecutableExecuteArgs) *pjrt.Error {
	x, err := of[*loaded](f, a.Executable)
	if err != nil {
		return err
	}
	options := (*capi.ExecuteOptions)(a.Options)
	if err := checkSize(options); err != nil {
		return err
	}
	if int(a.NumDevices) != len(x.devices) {
		return bad("%d devices, not %d", a.NumDevices, len(x.devices))
	}
	keep := array[int64](options.NonDonatableInputIndices, options.NumNonDonatableInputIndices)
	lists, outLists := array[uintptr](a.ArgumentLists, a.NumDevices), array[uintptr](a.OutputLists, a.NumDevices)
	all := make([][]*buffer, len(lists))
	for d, list := range lists {
		for i, h := range array[uintptr](address(list), a.NumArgs) {
			b, err := of[*buffer](f, h)
			if err != nil {
				return err
			}
			if b.donated {
				return bad("argument %d was deleted or donated", i)
			}
			all[d] = append(all[d], b)
		}
	}
	events := array[uintptr](a.DeviceCompleteEvents, a.NumDevices)
	var work []func()
	for d, args := range all {
		memories := x.devices[d].memories
		done := newEvent()
		var donated []bool
		for _, i := range x.program.Donates {
			donated = append(donated, i >= 0 && !slices.Contains(keep, int64(i)))
			if donated[len(donated)-1] {
				args[i].donated = true
			}
		}
		var outputs []*buffer
		for i, o := range x.program.Outputs {
			on := memories[max(0, slices.Index(f.kinds, o.MemoryKind))]
			outputs = append(outputs, &buffer{typ: int32(o.Type), dims: o.Dims, on: on, ready: done})
			array[uintptr](address(outLists[d]), uintptr(len(x.program.Outputs)))[i] = f.add(outputs[i])
		}
		if events != nil {
			events[d] = f.add(done)
		}
		work = append(work, func() {
			in := make([][]byte, len(args))
			for i, b := range args {
				<-b.ready.done
				if b.ready.err != nil {
					done.happened(b.ready.err)
					return
				}
				in[i] = b.data
			}
			out, err := x.program.Run(x.devices[d].id, in)
			if err != nil {
				done.happened(&pjrt.Error{Code: pjrt.Internal, Message: err.Error()})
				return
			}
			for i, b := range outputs {
				b.data = out[i]
				if i < len(x.program.Donates) && donated[i] {
					b.data = in[x.program.Donates[i]]
					copy(b.data, out[i])
				}
			}
			done.happened(nil)
		})
	}
	f.later(func() {
		var runs sync.WaitGroup
		for _, run := range work { // devices may wait for each other
			runs.Go(run)
		}
		runs.Wait()
	})
	return nil
}
