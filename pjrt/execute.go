// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"runtime"
	"unsafe"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// ExecuteOptions say how one execution differs from others of its program.
type ExecuteOptions struct {
	// Keep lists the positions of arguments that must survive, although the program says that an output may take their
	// memory (by tf.aliasing_output or jax.buffer_donor). All other such arguments are donated.
	Keep []int

	// LaunchID numbers executions of programs over several processes, so that the plugin can notice a different order.
	LaunchID int

	// NoEvents saves the events of completion, for callers that look at the outputs only.
	NoEvents bool
}

// Execute runs the program on its devices of this process. It returns once the work is enqueued: the outputs can be used at
// once, as arguments too, and an error of the devices comes with the events and with what depends on the outputs.
//
// Arguments and outputs are indexed by device, in the order of Devices, then by position. There is one event per device; the
// caller closes outputs and events.
func (x *Executable) Execute(args [][]*Buffer, options ExecuteOptions) (outputs [][]*Buffer, done []*Event, err error) {
	ptr, err := x.acquire()
	if err != nil {
		return nil, nil, err
	}
	defer x.release()
	numDevices, numOutputs, numArgs := len(x.devices), x.numOutputs, 0
	if len(args) != numDevices {
		return nil, nil, errors.Errorf("pjrt: the program %s runs on %d devices of this process, but has arguments for %d", x.name, numDevices, len(args))
	}
	if numDevices > 0 {
		numArgs = len(args[0])
	}

	// One block holds all lists that C reads and writes: the addresses of the lists of arguments and outputs, the lists, and
	// the events.
	block := make([]uintptr, numDevices*(2+numArgs+numOutputs+1)+1)
	argLists, rest := block[:numDevices], block[numDevices:]
	outLists, rest := rest[:numDevices], rest[numDevices:]
	argPtrs, rest := rest[:numDevices*numArgs], rest[numDevices*numArgs:]
	outPtrs, events := rest[:numDevices*numOutputs], rest[numDevices*numOutputs:]
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&block[0])
	address := func(list []uintptr) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(list))) } // fixed, as it is pinned

	inUse := make([]*Buffer, 0, numDevices*numArgs)
	defer func() {
		for _, b := range inUse {
			b.release()
		}
	}()
	for d, list := range args {
		if len(list) != numArgs {
			return nil, nil, errors.Errorf("pjrt: the program %s has %d arguments on device %d, but %d on device %d", x.name, len(list), x.devices[d].ID, numArgs, x.devices[0].ID)
		}
		for i, b := range list {
			if b == nil || b.client != x.client {
				return nil, nil, errors.WithMessagef(errOtherClient, "pjrt: argument %d of the program %s is nil or not the client's", i, x.name)
			}
			h, err := b.acquire()
			if err != nil {
				return nil, nil, errors.WithMessagef(err, "pjrt: argument %d of the program %s", i, x.name)
			}
			inUse = append(inUse, b)
			argPtrs[d*numArgs+i] = h
		}
		argLists[d], outLists[d] = address(argPtrs[d*numArgs:]), address(outPtrs[d*numOutputs:])
	}

	o := &capi.ExecuteOptions{LaunchId: int32(options.LaunchID)}
	o.SetSize()
	pin.Pin(o)
	if len(options.Keep) > 0 {
		keep := make([]int64, len(options.Keep))
		for i, k := range options.Keep {
			keep[i] = int64(k)
		}
		o.NonDonatableInputIndices, o.NumNonDonatableInputIndices = pinned(&pin, keep), uintptr(len(keep))
	}
	a := &capi.LoadedExecutableExecuteArgs{Executable: ptr, Options: unsafe.Pointer(o), NumDevices: uintptr(numDevices), NumArgs: uintptr(numArgs),
		ArgumentLists: unsafe.Pointer(unsafe.SliceData(argLists)), OutputLists: unsafe.Pointer(unsafe.SliceData(outLists))}
	if !options.NoEvents {
		a.DeviceCompleteEvents = unsafe.Pointer(unsafe.SliceData(events))
	}
	if err := call(x.client.plugin, capi.LoadedExecutableExecute, a); err != nil {
		return nil, nil, err
	}
	for d := range numDevices {
		list := make([]*Buffer, numOutputs)
		for i := range list {
			list[i] = newBuffer(x.client, outPtrs[d*numOutputs+i])
		}
		outputs = append(outputs, list)
		if !options.NoEvents {
			done = append(done, newEvent(x.client, events[d], "execution of "+x.name))
		}
	}
	return outputs, done, nil
}
