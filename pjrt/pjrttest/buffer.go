// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrttest

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/internal/capi"
)

func size(t int32, dims []int64) uintptr {
	n := uintptr(pjrt.Type(t).Size())
	for _, d := range dims {
		n *= uintptr(d)
	}
	return n
}

func bufferFunctions(table []uintptr) {
	set(table, capi.ClientBufferFromHostBuffer, func(f *Fake, a *capi.ClientBufferFromHostBufferArgs) *pjrt.Error {
		if _, err := of[*client](f, a.Client); err != nil {
			return err
		}
		if f.memories[a.Memory] == nil || f.memories[a.Memory].device.handle != a.Device {
			return bad("there is no such memory")
		}
		b := &buffer{typ: a.Type, dims: slices.Clone(array[int64](a.Dims, a.NumDims)), on: a.Memory, ready: newEvent()}
		from, n := uintptr(a.Data), size(a.Type, array[int64](a.Dims, a.NumDims)) // no pointer: it must not keep the memory
		read := func() {
			b.data = slices.Clone(array[byte](address(from), n))
			b.ready.happened(nil)
		}
		a.Buffer, a.DoneWithHostBuffer = f.add(b), f.add(b.ready)
		if a.HostBufferSemantics == capi.HostBufferSemanticsKImmutableOnlyDuringCall {
			read()
		} else {
			f.later(read)
		}
		return nil
	})
	set(table, capi.ClientCreateUninitializedBuffer, func(f *Fake, a *capi.ClientCreateUninitializedBufferArgs) *pjrt.Error {
		b := &buffer{typ: a.ShapeElementType, dims: slices.Clone(array[int64](a.ShapeDims, a.ShapeNumDims)), on: a.Memory, ready: newEvent()}
		b.data = make([]byte, size(b.typ, b.dims))
		b.ready.happened(nil)
		a.Buffer = f.add(b)
		return nil
	})
	set(table, capi.BufferDestroy, func(f *Fake, a *capi.BufferDestroyArgs) *pjrt.Error { return free[*buffer](f, a.Buffer) })
	set(table, capi.BufferElementType, func(f *Fake, a *capi.BufferElementTypeArgs) *pjrt.Error {
		b, err := of[*buffer](f, a.Buffer)
		if err == nil {
			a.Type = b.typ
		}
		return err
	})
	set(table, capi.BufferDimensions, func(f *Fake, a *capi.BufferDimensionsArgs) *pjrt.Error {
		b, err := of[*buffer](f, a.Buffer)
		if err == nil {
			a.Dims, a.NumDims = unsafe.Pointer(unsafe.SliceData(b.dims)), uintptr(len(b.dims))
		}
		return err
	})
	set(table, capi.BufferOnDeviceSizeInBytes, func(f *Fake, a *capi.BufferOnDeviceSizeInBytesArgs) *pjrt.Error {
		b, err := of[*buffer](f, a.Buffer)
		if err == nil {
			a.OnDeviceSizeInBytes = size(b.typ, b.dims)
		}
		return err
	})
	set(table, capi.BufferDevice, func(f *Fake, a *capi.BufferDeviceArgs) *pjrt.Error {
		b, err := of[*buffer](f, a.Buffer)
		if err == nil {
			a.Device = f.memories[b.on].device.handle
		}
		return err
	})
	set(table, capi.BufferMemory, func(f *Fake, a *capi.BufferMemoryArgs) *pjrt.Error {
		b, err := of[*buffer](f, a.Buffer)
		if err == nil {
			a.Memory = b.on
		}
		return err
	})
	set(table, capi.BufferIsDeleted, func(f *Fake, a *capi.BufferIsDeletedArgs) *pjrt.Error {
		b, err := of[*buffer](f, a.Buffer)
		if err == nil {
			a.IsDeleted = b.donated
		}
		return err
	})
	set(table, capi.BufferUnsafePointer, func(f *Fake, a *capi.BufferUnsafePointerArgs) *pjrt.Error {
		b, err := of[*buffer](f, a.Buffer)
		if err == nil && b.ready.isReady() {
			a.BufferPointer = uintptr(unsafe.Pointer(unsafe.SliceData(b.data)))
		}
		return err
	})
	set(table, capi.BufferReadyEvent, func(f *Fake, a *capi.BufferReadyEventArgs) *pjrt.Error {
		b, err := of[*buffer](f, a.Buffer)
		if err == nil {
			a.Event = f.add(b.ready)
		}
		return err
	})
	set(table, capi.BufferToHostBuffer, func(f *Fake, a *capi.BufferToHostBufferArgs) *pjrt.Error {
		b, err := of[*buffer](f, a.Src)
		if err != nil {
			return err
		}
		if b.donated {
			return bad("the buffer was donated")
		}
		if a.DstSize < size(b.typ, b.dims) {
			return bad("dst_size is %d", a.DstSize)
		}
		if err := checkLayout((*capi.BufferMemoryLayout)(a.HostLayout), len(b.dims)); err != nil {
			return err
		}
		done, to, n := newEvent(), uintptr(a.Dst), a.DstSize // no pointer: it must not keep the memory
		a.Event = f.add(done)
		f.later(func() {
			<-b.ready.done
			copy(array[byte](address(to), n), b.data)
			done.happened(b.ready.err)
		})
		return nil
	})
	set(table, capi.BufferCopyToMemory, func(f *Fake, a *capi.BufferCopyToMemoryArgs) *pjrt.Error {
		b, err := of[*buffer](f, a.Buffer)
		if err == nil {
			a.DstBuffer, err = f.copied(b, a.DstMemory)
		}
		return err
	})
	set(table, capi.BufferCopyToDevice, func(f *Fake, a *capi.BufferCopyToDeviceArgs) *pjrt.Error {
		b, err := of[*buffer](f, a.Buffer)
		if err != nil {
			return err
		}
		d, err := f.findDevice(a.DstDevice)
		if err == nil {
			a.DstBuffer, err = f.copied(b, d.memories[0])
		}
		return err
	})
}

// checkLayout checks that arrays are asked for row by row.
func checkLayout(layout *capi.BufferMemoryLayout, rank int) *pjrt.Error {
	if layout == nil {
		return nil
	}
	if err := checkSize(layout); err != nil {
		return err
	}
	if err := checkSize(&layout.Tiled); err != nil {
		return err
	}
	order := array[int64](layout.Tiled.MinorToMajor, layout.Tiled.MinorToMajorSize)
	if layout.Type != capi.BufferMemoryLayoutTypeTiled || len(order) != rank || layout.Tiled.NumTiles != 0 {
		return bad("the layout of a host buffer")
	}
	for i, dim := range order {
		if int(dim) != rank-1-i {
			return bad("the host buffer is not row by row: %v", order)
		}
	}
	return nil
}

// copied makes a copy of a buffer in another memory.
func (f *Fake) copied(b *buffer, to uintptr) (uintptr, *pjrt.Error) {
	if b.donated || b.on == to {
		return 0, bad("the buffer was donated or is there already")
	}
	dst := &buffer{typ: b.typ, dims: b.dims, on: to, ready: newEvent()}
	handle := f.add(dst)
	f.later(func() {
		<-b.ready.done
		dst.data = slices.Clone(b.data)
		dst.ready.happened(b.ready.err)
	})
	return handle, nil
}

// crossHost makes the functions of the extension for copies between processes.
var crossHost = sync.OnceValues(func() (send, receive uintptr) {
	// meet returns the buffer of a key, to which the first of both puts it and from which the second takes it.
	meet := func(f *Fake, key int64, mine *buffer) *buffer {
		other := f.mail[key]
		if other == nil {
			f.mail[key] = mine
		} else {
			delete(f.mail, key)
		}
		return other
	}
	deliver := func(from, to *buffer) {
		<-from.ready.done
		to.data = slices.Clone(from.data)
		to.ready.happened(from.ready.err)
	}
	send = callback("PJRT_Transfers_PJRT_Client_CrossHostSendBuffers", func(f *Fake, a *capi.CrossHostSendArgs) *pjrt.Error {
		b, err := of[*buffer](f, array[uintptr](a.Buffers, 1)[0])
		if err != nil {
			return err
		}
		c, err := of[*client](f, a.Client)
		if err != nil {
			return err
		}
		if c.store != nil { // the receiver is in another process
			sent := newEvent()
			array[uintptr](a.Events, 1)[0] = f.add(sent)
			key := array[int64](a.TransferKeys, 1)[0]
			f.later(func() {
				<-b.ready.done
				sent.happened(c.store.put(f, fmt.Sprint("copy/", key), "x"+string(b.data)))
			})
			return nil
		}
		array[uintptr](a.Events, 1)[0] = f.add(b.ready)
		if to := meet(f, array[int64](a.TransferKeys, 1)[0], b); to != nil {
			f.later(func() { deliver(b, to) })
		}
		return nil
	})
	receive = callback("PJRT_Transfers_PJRT_Client_CrossHostReceiveBuffers", func(f *Fake, a *capi.CrossHostReceiveArgs) *pjrt.Error {
		d, err := f.findDevice(a.Device)
		if err != nil {
			return err
		}
		rank := array[uintptr](a.ShapeNumDims, 1)[0]
		b := &buffer{typ: array[int32](a.ElementTypes, 1)[0], dims: slices.Clone(array[int64](address(array[uintptr](a.Dims, 1)[0]), rank)), on: d.memories[0], ready: newEvent()}
		array[uintptr](a.Buffers, 1)[0] = f.add(b)
		c, err := of[*client](f, a.Client)
		if err != nil {
			return err
		}
		if c.store != nil {
			key := array[int64](a.TransferKeys, 1)[0]
			f.later(func() {
				threads()(func() { // the sender may begin after this
					data, err := c.store.get(f, fmt.Sprint("copy/", key), 60_000)
					if err == nil {
						b.data = []byte(data)[1:]
					}
					b.ready.happened(err)
				})
			})
			return nil
		}
		if from := meet(f, array[int64](a.TransferKeys, 1)[0], b); from != nil {
			f.later(func() { deliver(from, b) })
		}
		return nil
	})
	return send, receive
})
