// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// CrossHost tells whether the plugin can copy buffers between processes ([Buffer.Send], [Device.Receive]). The extension of
// the API for that is experimental.
func (p *Plugin) CrossHost() bool {
	_, sends := p.crossHost(capi.CrossHostSend)
	_, receives := p.crossHost(capi.CrossHostReceive)
	return sends == nil && receives == nil
}

// crossHost returns a function of the extension.
func (p *Plugin) crossHost(position uintptr) (uintptr, error) {
	const word = unsafe.Sizeof(uintptr(0))
	base, at := p.extensions[capi.ExtensionTypeCrossHostTransfers], unsafe.Sizeof(capi.ExtensionBase{})+position*word
	if base != 0 && (*capi.ExtensionBase)(cPointer(base)).StructSize >= at+word {
		if f := *(*uintptr)(cPointer(base + at)); f != 0 {
			return f, nil
		}
	}
	return 0, errors.Errorf("pjrt: the plugin %s cannot copy buffers between processes", p.path)
}

// Send starts a copy of the buffer to a device of another process, which calls [Device.Receive] with the same key.
func (b *Buffer) Send(to *Device, key int64) (*Event, error) {
	if to.client != b.client {
		return nil, errOtherClient
	}
	send, err := b.client.plugin.crossHost(capi.CrossHostSend)
	if err != nil {
		return nil, err
	}
	ptr, err := b.acquire()
	if err != nil {
		return nil, err
	}
	defer b.release()
	var pin runtime.Pinner
	defer pin.Unpin()
	events := make([]uintptr, 1)
	a := &capi.CrossHostSendArgs{Client: b.client.ptr, NumBuffers: 1, Buffers: pinned(&pin, []uintptr{ptr}), DstGlobalDeviceIds: pinned(&pin, []int64{int64(to.ID)}),
		TransferKeys: pinned(&pin, []int64{key}), Events: pinned(&pin, events)}
	a.SetSize()
	failed, _, _ := purego.SyscallN(send, uintptr(unsafe.Pointer(a)))
	runtime.KeepAlive(a)
	if err := b.client.plugin.takeError(failed, "PJRT_Transfers_PJRT_Client_CrossHostSendBuffers"); err != nil {
		return nil, err
	}
	return newEvent(b.client, events[0], "sending a buffer"), nil
}

// Receive makes a buffer in the device's default memory of what a device of another process sends with the same key.
func (d *Device) Receive(from *Device, key int64, t Type, dims ...int64) (*Buffer, error) {
	c := d.client
	if from.client != c {
		return nil, errOtherClient
	}
	receive, err := c.plugin.crossHost(capi.CrossHostReceive)
	if err != nil {
		return nil, err
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	var pin runtime.Pinner
	defer pin.Unpin()
	shape := pinned(&pin, append(slices.Clone(dims), 0)) // an address, also for a scalar
	buffers := make([]uintptr, 1)
	a := &capi.CrossHostReceiveArgs{Client: c.ptr, NumShapes: 1, ShapeNumDims: pinned(&pin, []uintptr{uintptr(len(dims))}), Dims: pinned(&pin, []unsafe.Pointer{shape}),
		ElementTypes: pinned(&pin, []int32{int32(t)}), Layouts: pinned(&pin, []uintptr{0}), Device: d.ptr,
		SrcGlobalDeviceIds: pinned(&pin, []int64{int64(from.ID)}), TransferKeys: pinned(&pin, []int64{key}), Buffers: pinned(&pin, buffers)}
	a.SetSize()
	failed, _, _ := purego.SyscallN(receive, uintptr(unsafe.Pointer(a)))
	runtime.KeepAlive(a)
	if err := c.plugin.takeError(failed, "PJRT_Transfers_PJRT_Client_CrossHostReceiveBuffers"); err != nil {
		return nil, err
	}
	return newBuffer(c, buffers[0]), nil
}
