// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// Device is a device of a client, such as a GPU. It belongs to its client.
type Device struct {
	client *Client
	ptr    uintptr

	ID          int            // among the devices of all processes
	LocalID     int            // the hardware's number in its machine, such as CUDA's; -1 if unknown or not addressable
	Process     int            // the index of its process
	Kind        string         // such as "NVIDIA H200"
	Addressable bool           // whether it belongs to this process
	Attributes  map[string]any // such as "compute_capability"

	Memories      []*Memory // of an addressable device
	DefaultMemory *Memory   // the one that programs compute in
}

// Memory is a memory that a device uses. It belongs to its client.
type Memory struct {
	device *Device
	ptr    uintptr

	ID   int
	Kind string // "device", "pinned_host" or "unpinned_host"
}

// newDevice asks for what does not change while the client lives.
func newDevice(c *Client, ptr uintptr) (*Device, error) {
	p := c.plugin
	of := &capi.DeviceGetDescriptionArgs{Device: ptr}
	if err := call(p, capi.DeviceGetDescription, of); err != nil {
		return nil, err
	}
	id, process := &capi.DeviceDescriptionIdArgs{DeviceDescription: of.DeviceDescription}, &capi.DeviceDescriptionProcessIndexArgs{DeviceDescription: of.DeviceDescription}
	kind, attributes := &capi.DeviceDescriptionKindArgs{DeviceDescription: of.DeviceDescription}, &capi.DeviceDescriptionAttributesArgs{DeviceDescription: of.DeviceDescription}
	addressable := &capi.DeviceIsAddressableArgs{Device: ptr}
	if err := joined(call(p, capi.DeviceDescriptionId, id), call(p, capi.DeviceDescriptionProcessIndex, process), call(p, capi.DeviceDescriptionKind, kind),
		call(p, capi.DeviceDescriptionAttributes, attributes), call(p, capi.DeviceIsAddressable, addressable)); err != nil {
		return nil, err
	}
	d := &Device{client: c, ptr: ptr, ID: int(id.Id), LocalID: -1, Process: int(process.ProcessIndex), Kind: cString(kind.DeviceKind, kind.DeviceKindSize),
		Addressable: addressable.IsAddressable, Attributes: goValues(attributes.Attributes, attributes.NumAttributes)}
	if !d.Addressable {
		return d, nil
	}
	local, memories, first := &capi.DeviceLocalHardwareIdArgs{Device: ptr}, &capi.DeviceAddressableMemoriesArgs{Device: ptr}, &capi.DeviceDefaultMemoryArgs{Device: ptr}
	if err := joined(call(p, capi.DeviceLocalHardwareId, local), call(p, capi.DeviceAddressableMemories, memories), call(p, capi.DeviceDefaultMemory, first)); err != nil {
		return nil, err
	}
	d.LocalID = int(local.LocalHardwareId)
	for _, ptr := range cSlice[uintptr](memories.Memories, memories.NumMemories) {
		id, kind := &capi.MemoryIdArgs{Memory: ptr}, &capi.MemoryKindArgs{Memory: ptr}
		if err := joined(call(p, capi.MemoryId, id), call(p, capi.MemoryKind, kind)); err != nil {
			return nil, err
		}
		m := &Memory{device: d, ptr: ptr, ID: int(id.Id), Kind: cString(kind.Kind, kind.KindSize)}
		d.Memories = append(d.Memories, m)
		if ptr == first.Memory {
			d.DefaultMemory = m
		}
	}
	return d, nil
}

// Memory returns the memory of a kind that the device uses.
func (d *Device) Memory(kind string) (*Memory, error) {
	var kinds []string
	for _, m := range d.Memories {
		if m.Kind == kind {
			return m, nil
		}
		kinds = append(kinds, m.Kind)
	}
	return nil, errors.Errorf("pjrt: device %d has no memory of kind %q; its memories are %q", d.ID, kind, kinds)
}

// enter begins a call that puts something into the memory, and returns its client.
func (m *Memory) enter() (*Client, error) {
	if m == nil {
		return nil, errors.New("pjrt: there is no memory: devices of other processes have none here")
	}
	return m.device.client, m.device.client.enter()
}

// MemoryStats are the counters of a device's allocator, in bytes. A counter is -1 if the plugin does not have it.
type MemoryStats struct {
	InUse, PeakInUse int64
	Limit            int64 // what the allocator may take
	Pool, PeakPool   int64 // what it has taken from the device
	LargestFree      int64
	LargestAlloc     int64
	Allocs           int64 // a number, not bytes
}

// MemoryStats returns the counters of the device's allocator.
func (d *Device) MemoryStats() (MemoryStats, error) {
	if err := d.client.enter(); err != nil {
		return MemoryStats{}, err
	}
	defer d.client.leave()
	a := &capi.DeviceMemoryStatsArgs{Device: d.ptr}
	if err := call(d.client.plugin, capi.DeviceMemoryStats, a); err != nil {
		return MemoryStats{}, err
	}
	optional := func(n int64, set bool) int64 {
		if !set {
			return -1
		}
		return n
	}
	return MemoryStats{
		InUse:        a.BytesInUse,
		PeakInUse:    optional(a.PeakBytesInUse, a.PeakBytesInUseIsSet),
		Limit:        optional(a.BytesLimit, a.BytesLimitIsSet),
		Pool:         optional(a.PoolBytes, a.PoolBytesIsSet),
		PeakPool:     optional(a.PeakPoolBytes, a.PeakPoolBytesIsSet),
		LargestFree:  optional(a.LargestFreeBlockBytes, a.LargestFreeBlockBytesIsSet),
		LargestAlloc: optional(a.LargestAllocSize, a.LargestAllocSizeIsSet),
		Allocs:       optional(a.NumAllocs, a.NumAllocsIsSet),
	}, nil
}
