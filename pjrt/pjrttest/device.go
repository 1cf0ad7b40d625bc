// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrttest

import (
	"cmp"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/internal/capi"
)

func deviceFunctions(table []uintptr) {
	set(table, capi.DeviceGetDescription, func(f *Fake, a *capi.DeviceGetDescriptionArgs) *pjrt.Error {
		_, err := f.findDevice(a.Device)
		a.DeviceDescription = a.Device
		return err
	})
	set(table, capi.DeviceDescriptionId, func(f *Fake, a *capi.DeviceDescriptionIdArgs) *pjrt.Error {
		d, err := f.findDevice(a.DeviceDescription)
		if err == nil {
			a.Id = int32(d.id)
		}
		return err
	})
	set(table, capi.DeviceDescriptionProcessIndex, func(f *Fake, a *capi.DeviceDescriptionProcessIndexArgs) *pjrt.Error {
		d, err := f.findDevice(a.DeviceDescription)
		if err == nil {
			a.ProcessIndex = int32(d.process)
		}
		return err
	})
	set(table, capi.DeviceDescriptionKind, func(f *Fake, a *capi.DeviceDescriptionKindArgs) *pjrt.Error {
		a.DeviceKind, a.DeviceKindSize = f.text("Fake GPU")
		return nil
	})
	set(table, capi.DeviceDescriptionAttributes, func(f *Fake, a *capi.DeviceDescriptionAttributesArgs) *pjrt.Error {
		capability, n := f.text("9.0")
		vs := &[2]capi.NamedValue{{Type: capi.NamedValueKInt64, Value: 132, ValueSize: 1}, {Type: capi.NamedValueKString, Value: uint64(uintptr(capability)), ValueSize: n}}
		for i, name := range []string{"core_count", "compute_capability"} {
			vs[i].SetSize()
			vs[i].Name, vs[i].NameSize = f.text(name)
		}
		f.keep = append(f.keep, vs)
		a.Attributes, a.NumAttributes = unsafe.Pointer(vs), 2
		return nil
	})
	set(table, capi.DeviceIsAddressable, func(f *Fake, a *capi.DeviceIsAddressableArgs) *pjrt.Error {
		d, err := f.findDevice(a.Device)
		if err == nil {
			a.IsAddressable = d.local
		}
		return err
	})
	set(table, capi.DeviceLocalHardwareId, func(f *Fake, a *capi.DeviceLocalHardwareIdArgs) *pjrt.Error {
		d, err := f.findDevice(a.Device)
		if err == nil {
			a.LocalHardwareId = int32(d.number)
		}
		return err
	})
	set(table, capi.DeviceAddressableMemories, func(f *Fake, a *capi.DeviceAddressableMemoriesArgs) *pjrt.Error {
		d, err := f.findDevice(a.Device)
		if err == nil {
			a.Memories, a.NumMemories = unsafe.Pointer(&d.memories[0]), uintptr(len(d.memories))
		}
		return err
	})
	set(table, capi.DeviceDefaultMemory, func(f *Fake, a *capi.DeviceDefaultMemoryArgs) *pjrt.Error {
		d, err := f.findDevice(a.Device)
		if err == nil {
			a.Memory = d.memories[0]
		}
		return err
	})
	set(table, capi.DeviceMemoryStats, func(f *Fake, a *capi.DeviceMemoryStatsArgs) *pjrt.Error {
		d, err := f.findDevice(a.Device)
		if err != nil {
			return err
		}
		a.BytesInUse = f.inUse(d.memories[0])
		a.PeakBytesInUse, a.PeakBytesInUseIsSet = f.peaks[d.memories[0]], true
		a.BytesLimit, a.BytesLimitIsSet = cmp.Or(f.options.Memory, 1<<30), true
		return nil
	})
	set(table, capi.MemoryId, func(f *Fake, a *capi.MemoryIdArgs) *pjrt.Error {
		a.Id = int32(f.memories[a.Memory].id)
		return nil
	})
	set(table, capi.MemoryKind, func(f *Fake, a *capi.MemoryKindArgs) *pjrt.Error {
		a.Kind, a.KindSize = f.text(f.memories[a.Memory].kind)
		return nil
	})
}

// deleteSerialized is the function by which callers free what Serialize gave them.
var deleteSerialized = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(handle uintptr) uintptr {
		f := current.Load()
		f.mu.Lock()
		defer f.mu.Unlock()
		if err := free[*serialized](f, handle); err != nil {
			panic(err)
		}
		return 0
	})
})
