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

// Executable is a compiled program that is loaded onto its devices. It owns both of C's objects for that, the
// PJRT_LoadedExecutable, which runs, and the PJRT_Executable, which describes it.
type Executable struct {
	handle
	description uintptr // the PJRT_Executable

	name       string
	numOutputs int
	devices    []*Device
}

// Compile compiles StableHLO, as text or bytecode, and loads it.
func (c *Client) Compile(program []byte, options CompileOptions) (*Executable, error) {
	if len(program) == 0 {
		return nil, errors.New("pjrt: the program is empty")
	}
	o, err := options.proto()
	if err != nil {
		return nil, err
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	var pin runtime.Pinner
	defer pin.Unpin()
	const format = "mlir"
	text := append(slices.Clip(program), 0) // MLIR's parser looks at what comes after the end
	code := &capi.Program{Code: pinned(&pin, text), CodeSize: uintptr(len(program)), Format: pinnedString(&pin, format), FormatSize: uintptr(len(format))}
	code.SetSize()
	pin.Pin(code)
	a := &capi.ClientCompileArgs{Client: c.ptr, Program: unsafe.Pointer(code), CompileOptions: pinned(&pin, o), CompileOptionsSize: uintptr(len(o))}
	if err := call(c.plugin, capi.ClientCompile, a); err != nil {
		return nil, err
	}
	return newExecutable(c, a.Executable)
}

// Deserialize loads what [Executable.Serialize] wrote, with the same version of the plugin and on the same kind of device.
func (c *Client) Deserialize(serialized []byte) (*Executable, error) {
	if len(serialized) == 0 {
		return nil, errors.New("pjrt: the serialized program is empty")
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	var pin runtime.Pinner
	defer pin.Unpin()
	a := &capi.ExecutableDeserializeAndLoadArgs{Client: c.ptr, SerializedExecutable: pinned(&pin, serialized), SerializedExecutableSize: uintptr(len(serialized))}
	if err := call(c.plugin, capi.ExecutableDeserializeAndLoad, a); err != nil {
		return nil, err
	}
	return newExecutable(c, a.LoadedExecutable)
}

// newExecutable owns a PJRT_LoadedExecutable, and asks for what Execute needs.
func newExecutable(c *Client, ptr uintptr) (*Executable, error) {
	x := &Executable{}
	x.own(c, ptr, x)
	if err := x.ask(); err != nil {
		return nil, joined(err, x.Close())
	}
	return x, nil
}

func (x *Executable) ask() error {
	p := x.client.plugin
	description := &capi.LoadedExecutableGetExecutableArgs{LoadedExecutable: x.ptr}
	if err := call(p, capi.LoadedExecutableGetExecutable, description); err != nil {
		return err
	}
	x.description = description.Executable
	name, outputs := &capi.ExecutableNameArgs{Executable: x.description}, &capi.ExecutableNumOutputsArgs{Executable: x.description}
	devices := &capi.LoadedExecutableAddressableDevicesArgs{Executable: x.ptr}
	if err := joined(call(p, capi.ExecutableName, name), call(p, capi.ExecutableNumOutputs, outputs), call(p, capi.LoadedExecutableAddressableDevices, devices)); err != nil {
		return err
	}
	x.name, x.numOutputs = cString(name.ExecutableName, name.ExecutableNameSize), int(outputs.NumOutputs)
	for _, ptr := range cSlice[uintptr](devices.AddressableDevices, devices.NumAddressableDevices) {
		i := slices.IndexFunc(x.client.devices, func(d *Device) bool { return d.ptr == ptr })
		if i < 0 {
			return errors.Errorf("pjrt: the program %s runs on a device that its client does not have", x.name)
		}
		x.devices = append(x.devices, x.client.devices[i])
	}
	return nil
}

// Name returns the name of the program's module.
func (x *Executable) Name() string { return x.name }

// NumOutputs returns how many outputs the program has on each device.
func (x *Executable) NumOutputs() int { return x.numOutputs }

// Devices returns the devices of this process that the program runs on, in the order of the lists of arguments and outputs.
func (x *Executable) Devices() []*Device { return slices.Clone(x.devices) }

// Serialize returns the compiled program, for a cache.
func (x *Executable) Serialize() ([]byte, error) {
	if _, err := x.acquire(); err != nil {
		return nil, err
	}
	defer x.release()
	a := &capi.ExecutableSerializeArgs{Executable: x.description}
	if err := call(x.client.plugin, capi.ExecutableSerialize, a); err != nil {
		return nil, err
	}
	serialized := slices.Clone(cSlice[byte](a.SerializedBytes, a.SerializedBytesSize))
	purego.SyscallN(a.SerializedExecutableDeleter, a.SerializedExecutable)
	return serialized, nil
}

// CompiledMemory is what a program needs on each device, in bytes, as the compiler planned it.
type CompiledMemory struct {
	Peak      int64 // arguments, outputs and temporaries at the worst moment
	Arguments int64
	Outputs   int64
	Aliased   int64 // of the outputs, what takes the memory of arguments
	Temporary int64
	Code      int64

	HostArguments, HostOutputs, HostAliased, HostTemporary int64 // in memory of the host
}

// Memory returns what the program needs. After [Client.Deserialize] the CUDA plugin returns zeros: caches store it beside
// the program.
func (x *Executable) Memory() (CompiledMemory, error) {
	if _, err := x.acquire(); err != nil {
		return CompiledMemory{}, err
	}
	defer x.release()
	a := &capi.ExecutableGetCompiledMemoryStatsArgs{Executable: x.description}
	err := call(x.client.plugin, capi.ExecutableGetCompiledMemoryStats, a)
	return CompiledMemory{
		Peak: a.PeakMemoryInBytes, Arguments: a.ArgumentSizeInBytes, Outputs: a.OutputSizeInBytes, Aliased: a.AliasSizeInBytes,
		Temporary: a.TempSizeInBytes, Code: a.GeneratedCodeSizeInBytes,
		HostArguments: a.HostArgumentSizeInBytes, HostOutputs: a.HostOutputSizeInBytes, HostAliased: a.HostAliasSizeInBytes, HostTemporary: a.HostTempSizeInBytes,
	}, err
}

// Output describes an output of a program.
type Output struct {
	Type       Type
	Dims       []int64
	MemoryKind string
}

// Outputs describes the outputs on each device.
func (x *Executable) Outputs() ([]Output, error) {
	if _, err := x.acquire(); err != nil {
		return nil, err
	}
	defer x.release()
	p := x.client.plugin
	types, shapes := &capi.ExecutableOutputElementTypesArgs{Executable: x.description}, &capi.ExecutableOutputDimensionsArgs{Executable: x.description}
	kinds := &capi.ExecutableOutputMemoryKindsArgs{Executable: x.description}
	if err := joined(call(p, capi.ExecutableOutputElementTypes, types), call(p, capi.ExecutableOutputDimensions, shapes), call(p, capi.ExecutableOutputMemoryKinds, kinds)); err != nil {
		return nil, err
	}
	if n := uintptr(x.numOutputs); types.NumOutputTypes != n || shapes.NumOutputs != n || kinds.NumOutputs != n {
		return nil, errors.Errorf("pjrt: the program %s has %d outputs, of which the plugin describes %d types, %d shapes and %d kinds of memory",
			x.name, n, types.NumOutputTypes, shapes.NumOutputs, kinds.NumOutputs)
	}
	outputs := make([]Output, x.numOutputs)
	ranks := cSlice[uintptr](shapes.DimSizes, shapes.NumOutputs)
	names, lengths := cSlice[unsafe.Pointer](kinds.MemoryKinds, kinds.NumOutputs), cSlice[uintptr](kinds.MemoryKindSizes, kinds.NumOutputs)
	var total uintptr
	for _, rank := range ranks {
		total += rank
	}
	dims := cSlice[int64](shapes.Dims, total) // of all outputs, one after another
	for i, t := range cSlice[int32](types.OutputTypes, types.NumOutputTypes) {
		outputs[i] = Output{Type: Type(t), Dims: slices.Clone(dims[:ranks[i]]), MemoryKind: cString(names[i], lengths[i])}
		dims = dims[ranks[i]:]
	}
	return outputs, nil
}

// OptimizedProgram returns what the compiler made of the program: a serialized HloModuleProto, as a rule, of which format
// is the name.
func (x *Executable) OptimizedProgram() (program []byte, format string, err error) {
	if _, err := x.acquire(); err != nil {
		return nil, "", err
	}
	defer x.release()
	var pin runtime.Pinner
	defer pin.Unpin()
	code := &capi.Program{}
	code.SetSize()
	pin.Pin(code)
	a := &capi.ExecutableOptimizedProgramArgs{Executable: x.description, Program: unsafe.Pointer(code)}
	if err := call(x.client.plugin, capi.ExecutableOptimizedProgram, a); err != nil { // asks for the size
		return nil, "", err
	}
	program = make([]byte, code.CodeSize)
	code.Code = pinned(&pin, program)
	if err := call(x.client.plugin, capi.ExecutableOptimizedProgram, a); err != nil {
		return nil, "", err
	}
	return program, cString(code.Format, code.FormatSize), nil
}

func (x *Executable) kind() string     { return "executable" }
func (x *Executable) describe() string { return "executable " + x.name }

func (x *Executable) destroy() error {
	var err error
	if x.description != 0 {
		err = call(x.client.plugin, capi.ExecutableDestroy, &capi.ExecutableDestroyArgs{Executable: x.description})
	}
	return joined(err, call(x.client.plugin, capi.LoadedExecutableDestroy, &capi.LoadedExecutableDestroyArgs{Executable: x.ptr}))
}
