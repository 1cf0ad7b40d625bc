// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// Buffer is an array in a memory of a device. Its content may still be on its way.
type Buffer struct{ handle }

func newBuffer(c *Client, ptr uintptr) *Buffer {
	b := &Buffer{}
	b.own(c, ptr, b)
	return b
}

// hostSize returns the bytes of an array on the host, row by row.
func hostSize(t Type, dims []int64) (int, error) {
	n := int64(t.Size())
	if n == 0 {
		return 0, errors.Errorf("pjrt: there are no arrays of %s", t)
	}
	for _, d := range dims {
		if d < 0 || d > 0 && n > (1<<62)/d {
			return 0, errors.Errorf("pjrt: there are no arrays of dims %v", dims)
		}
		n *= d
	}
	return int(n), nil
}

// FromHost makes a buffer of elements that lie row by row in data. C has read data when it returns; the copy to the device
// goes on.
func (m *Memory) FromHost(data []byte, t Type, dims ...int64) (*Buffer, error) {
	b, done, err := m.fromHost(data, t, dims, capi.HostBufferSemanticsKImmutableOnlyDuringCall)
	if err != nil {
		return nil, err
	}
	if err := done.Close(); err != nil {
		return nil, joined(err, b.Close())
	}
	return b, nil
}

// FromHostAsync is FromHost without a copy on the host: data must not change until the event is ready. The event is to be
// closed; see [Finish].
func (m *Memory) FromHostAsync(data []byte, t Type, dims ...int64) (*Buffer, *Event, error) {
	return m.fromHost(data, t, dims, capi.HostBufferSemanticsKImmutableUntilTransferCompletes)
}

func (m *Memory) fromHost(data []byte, t Type, dims []int64, semantics int32) (*Buffer, *Event, error) {
	c, err := m.enter()
	if err != nil {
		return nil, nil, err
	}
	defer c.leave()
	if n, err := hostSize(t, dims); err != nil {
		return nil, nil, err
	} else if n != len(data) {
		return nil, nil, errors.Errorf("pjrt: %s%v takes %d bytes on the host, not %d", t, dims, n, len(data))
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	if len(data) == 0 {
		data = []byte{0} // an address for C
	}
	a := &capi.ClientBufferFromHostBufferArgs{Client: c.ptr, Data: pinned(&pin, data), Type: int32(t), Dims: pinned(&pin, slices.Clone(dims)), NumDims: uintptr(len(dims)),
		HostBufferSemantics: semantics, Device: m.device.ptr, Memory: m.ptr}
	if err := call(c.plugin, capi.ClientBufferFromHostBuffer, a); err != nil {
		return nil, nil, err
	}
	var guarded [][]byte
	if semantics != capi.HostBufferSemanticsKImmutableOnlyDuringCall {
		guarded = [][]byte{data}
	}
	return newBuffer(c, a.Buffer), newEvent(c, a.DoneWithHostBuffer, "copy from the host", guarded...), nil
}

// Uninitialized makes a buffer with any content.
func (m *Memory) Uninitialized(t Type, dims ...int64) (*Buffer, error) {
	c, err := m.enter()
	if err != nil {
		return nil, err
	}
	defer c.leave()
	var pin runtime.Pinner
	defer pin.Unpin()
	a := &capi.ClientCreateUninitializedBufferArgs{Client: c.ptr, ShapeDims: pinned(&pin, slices.Clone(dims)), ShapeNumDims: uintptr(len(dims)),
		ShapeElementType: int32(t), Device: m.device.ptr, Memory: m.ptr}
	if err := call(c.plugin, capi.ClientCreateUninitializedBuffer, a); err != nil {
		return nil, err
	}
	return newBuffer(c, a.Buffer), nil
}

// Type returns the type of the elements.
func (b *Buffer) Type() (Type, error) {
	ptr, err := b.acquire()
	if err != nil {
		return 0, err
	}
	defer b.release()
	a := &capi.BufferElementTypeArgs{Buffer: ptr}
	err = call(b.client.plugin, capi.BufferElementType, a)
	return Type(a.Type), err
}

// Dims returns the dimensions.
func (b *Buffer) Dims() ([]int64, error) {
	ptr, err := b.acquire()
	if err != nil {
		return nil, err
	}
	defer b.release()
	return b.dims(ptr)
}

func (b *Buffer) dims(ptr uintptr) ([]int64, error) {
	a := &capi.BufferDimensionsArgs{Buffer: ptr}
	err := call(b.client.plugin, capi.BufferDimensions, a)
	return slices.Clone(cSlice[int64](a.Dims, a.NumDims)), err
}

// SizeOnDevice returns the bytes that the buffer takes on the device.
func (b *Buffer) SizeOnDevice() (int64, error) {
	ptr, err := b.acquire()
	if err != nil {
		return 0, err
	}
	defer b.release()
	a := &capi.BufferOnDeviceSizeInBytesArgs{Buffer: ptr}
	err = call(b.client.plugin, capi.BufferOnDeviceSizeInBytes, a)
	return int64(a.OnDeviceSizeInBytes), err
}

// Memory returns the memory that the buffer is in.
func (b *Buffer) Memory() (*Memory, error) {
	ptr, err := b.acquire()
	if err != nil {
		return nil, err
	}
	defer b.release()
	device, memory := &capi.BufferDeviceArgs{Buffer: ptr}, &capi.BufferMemoryArgs{Buffer: ptr}
	if err := joined(call(b.client.plugin, capi.BufferDevice, device), call(b.client.plugin, capi.BufferMemory, memory)); err != nil {
		return nil, err
	}
	for _, d := range b.client.devices {
		for _, m := range d.Memories {
			if d.ptr == device.Device && m.ptr == memory.Memory {
				return m, nil
			}
		}
	}
	return nil, errors.New("pjrt: the buffer is in a memory that its client does not have")
}

// Device returns the device whose memory it is.
func (m *Memory) Device() *Device { return m.device }

// Donated tells whether the buffer has lost its content, because an execution took its memory for an output.
func (b *Buffer) Donated() (bool, error) {
	ptr, err := b.acquire()
	if err != nil {
		return false, err
	}
	defer b.release()
	a := &capi.BufferIsDeletedArgs{Buffer: ptr}
	err = call(b.client.plugin, capi.BufferIsDeleted, a)
	return a.IsDeleted, err
}

// Address returns the address of the content in the device's memory, to see what aliases what.
func (b *Buffer) Address() (uintptr, error) {
	ptr, err := b.acquire()
	if err != nil {
		return 0, err
	}
	defer b.release()
	a := &capi.BufferUnsafePointerArgs{Buffer: ptr}
	err = call(b.client.plugin, capi.BufferUnsafePointer, a)
	return a.BufferPointer, err
}

// ReadyEvent returns the event of the content being there. If it never comes, the event has the error.
func (b *Buffer) ReadyEvent() (*Event, error) {
	ptr, err := b.acquire()
	if err != nil {
		return nil, err
	}
	defer b.release()
	a := &capi.BufferReadyEventArgs{Buffer: ptr}
	if err := call(b.client.plugin, capi.BufferReadyEvent, a); err != nil {
		return nil, err
	}
	return newEvent(b.client, a.Event, "a buffer"), nil
}

// ToHost starts a copy of the elements, row by row, to dst, which must be as large as they are and must not be used until
// the event is ready. The event is to be closed; see [Finish].
func (b *Buffer) ToHost(dst []byte) (*Event, error) {
	ptr, err := b.acquire()
	if err != nil {
		return nil, err
	}
	defer b.release()
	t := &capi.BufferElementTypeArgs{Buffer: ptr}
	if err := call(b.client.plugin, capi.BufferElementType, t); err != nil {
		return nil, err
	}
	dims, err := b.dims(ptr)
	if err != nil {
		return nil, err
	}
	n, err := hostSize(Type(t.Type), dims)
	if err != nil {
		return nil, err
	}
	if n != len(dst) {
		return nil, errors.Errorf("pjrt: %s%v takes %d bytes on the host, not %d", Type(t.Type), dims, n, len(dst))
	}
	if n == 0 {
		dst = []byte{0} // a null address would ask for the size
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	a := &capi.BufferToHostBufferArgs{Src: ptr, Dst: pinned(&pin, dst), DstSize: uintptr(n)}
	if len(dims) > 1 {
		a.HostLayout = rowByRow(&pin, len(dims)) // the device's may be another
	}
	if err := call(b.client.plugin, capi.BufferToHostBuffer, a); err != nil {
		return nil, err
	}
	return newEvent(b.client, a.Event, "copy to the host", dst), nil
}

// rowByRow is the layout in which the last dimension is contiguous.
func rowByRow(pin *runtime.Pinner, rank int) unsafe.Pointer {
	order := make([]int64, rank)
	for i := range order {
		order[i] = int64(rank - 1 - i)
	}
	layout := &capi.BufferMemoryLayout{Type: capi.BufferMemoryLayoutTypeTiled}
	layout.SetSize()
	layout.Tiled.SetSize()
	layout.Tiled.MinorToMajor, layout.Tiled.MinorToMajorSize = pinned(pin, order), uintptr(rank)
	pin.Pin(layout)
	return unsafe.Pointer(layout)
}

// CopyToMemory starts a copy to another memory, of the same device or of another one.
func (b *Buffer) CopyToMemory(m *Memory) (*Buffer, error) {
	if m == nil || m.device.client != b.client {
		return nil, errOtherClient
	}
	ptr, err := b.acquire()
	if err != nil {
		return nil, err
	}
	defer b.release()
	a := &capi.BufferCopyToMemoryArgs{Buffer: ptr, DstMemory: m.ptr}
	if err := call(b.client.plugin, capi.BufferCopyToMemory, a); err != nil {
		return nil, err
	}
	return newBuffer(b.client, a.DstBuffer), nil
}

// CopyToDevice starts a copy to the default memory of another device.
func (b *Buffer) CopyToDevice(d *Device) (*Buffer, error) {
	if d.client != b.client {
		return nil, errOtherClient
	}
	ptr, err := b.acquire()
	if err != nil {
		return nil, err
	}
	defer b.release()
	a := &capi.BufferCopyToDeviceArgs{Buffer: ptr, DstDevice: d.ptr}
	if err := call(b.client.plugin, capi.BufferCopyToDevice, a); err != nil {
		return nil, err
	}
	return newBuffer(b.client, a.DstBuffer), nil
}

var errOtherClient = errors.New("pjrt: objects of different clients cannot be used together")

func (b *Buffer) kind() string { return "buffer" }

func (b *Buffer) describe() string {
	t, err := b.Type()
	dims, err2 := b.Dims()
	if err != nil || err2 != nil {
		return b.kind()
	}
	return fmt.Sprintf("buffer %s%v", t, dims)
}

func (b *Buffer) destroy() error {
	return call(b.client.plugin, capi.BufferDestroy, &capi.BufferDestroyArgs{Buffer: b.ptr})
}

// HostMapping is memory of the host that copies to and from devices use directly, which is several times faster.
type HostMapping struct {
	handle
	pin runtime.Pinner
}

// MapHost maps memory for fast copies. The memory stays where it is until the mapping is closed.
func (c *Client) MapHost(data []byte) (*HostMapping, error) {
	if len(data) == 0 {
		return nil, errors.New("pjrt: no memory cannot be mapped")
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	m := &HostMapping{}
	p := pinned(&m.pin, data)
	if err := call(c.plugin, capi.ClientDmaMap, &capi.ClientDmaMapArgs{Client: c.ptr, Data: p, Size: uintptr(len(data))}); err != nil {
		m.pin.Unpin()
		return nil, err
	}
	m.own(c, uintptr(p), m)
	return m, nil
}

func (m *HostMapping) kind() string     { return "host mapping" }
func (m *HostMapping) describe() string { return m.kind() }

func (m *HostMapping) destroy() error {
	defer m.pin.Unpin()
	return call(m.client.plugin, capi.ClientDmaUnmap, &capi.ClientDmaUnmapArgs{Client: m.client.ptr, Data: cPointer(m.ptr)})
}
