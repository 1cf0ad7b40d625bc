// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrttest

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// readValues reads an array of PJRT_NamedValue.
func readValues(p unsafe.Pointer, n uintptr) (map[string]any, *pjrt.Error) {
	values := map[string]any{}
	for _, v := range array[capi.NamedValue](p, n) {
		if err := checkSize(&v); err != nil {
			return nil, err
		}
		name, value := string(array[byte](v.Name, v.NameSize)), address(uintptr(v.Value))
		switch v.Type {
		case capi.NamedValueKString:
			values[name] = string(array[byte](value, v.ValueSize))
		case capi.NamedValueKInt64:
			values[name] = int64(v.Value)
		case capi.NamedValueKInt64List:
			values[name] = slices.Clone(array[int64](value, v.ValueSize))
		case capi.NamedValueKFloat:
			values[name] = math.Float32frombits(uint32(v.Value))
		case capi.NamedValueKBool:
			values[name] = v.Value != 0
		}
	}
	return values, nil
}

// makeError is the function by which callbacks make errors. The pointer to it is what C passes to them.
var makeError = sync.OnceValue(func() *uintptr {
	function := purego.NewCallback(func(code, message, size uintptr) uintptr {
		f := current.Load()
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.add(&failure{&pjrt.Error{Code: pjrt.Code(code), Message: string(array[byte](address(message), size))}})
	})
	return &function
})

// took returns the error that a callback gave, and frees it.
func (f *Fake) took(handle uintptr) *pjrt.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed, err := of[*failure](f, handle)
	if err != nil {
		return err
	}
	delete(f.objects, handle)
	return failed.err
}

// keyValue is the store that the client was given.
type keyValue struct{ args capi.ClientCreateArgs }

func (k keyValue) put(f *Fake, key, value string) *pjrt.Error {
	kb, vb := []byte(key), []byte(value)
	a := &capi.KeyValuePutCallbackArgs{Key: unsafe.Pointer(&kb[0]), KeySize: uintptr(len(kb)), Value: unsafe.Pointer(&vb[0]), ValueSize: uintptr(len(vb)),
		CallbackError: uintptr(unsafe.Pointer(makeError())), UserArg: k.args.KvPutUserArg}
	a.SetSize()
	if failed, _, _ := purego.SyscallN(k.args.KvPutCallback, uintptr(unsafe.Pointer(a))); failed != 0 {
		return f.took(failed)
	}
	return nil
}

func (k keyValue) get(f *Fake, key string, timeout int32) (string, *pjrt.Error) {
	kb := []byte(key)
	a := &capi.KeyValueGetCallbackArgs{Key: unsafe.Pointer(&kb[0]), KeySize: uintptr(len(kb)), TimeoutInMs: timeout,
		CallbackError: uintptr(unsafe.Pointer(makeError())), UserArg: k.args.KvGetUserArg}
	a.SetSize()
	if failed, _, _ := purego.SyscallN(k.args.KvGetCallback, uintptr(unsafe.Pointer(a))); failed != 0 {
		return "", f.took(failed)
	}
	value := string(array[byte](a.Value, a.ValueSize))
	purego.SyscallN(a.ValueDeleterCallback, uintptr(a.Value))
	return value, nil
}

func (k keyValue) tryGet(f *Fake, key string) (string, *pjrt.Error) {
	kb := []byte(key)
	a := &capi.KeyValueTryGetCallbackArgs{Key: unsafe.Pointer(&kb[0]), KeySize: uintptr(len(kb)),
		CallbackError: uintptr(unsafe.Pointer(makeError())), UserArg: k.args.KvTryGetUserArg}
	a.SetSize()
	if failed, _, _ := purego.SyscallN(k.args.KvTryGetCallback, uintptr(unsafe.Pointer(a))); failed != 0 {
		return "", f.took(failed)
	}
	value := string(array[byte](a.Value, a.ValueSize))
	purego.SyscallN(a.ValueDeleterCallback, uintptr(a.Value))
	return value, nil
}

// exchange tells the other processes how many devices this one has, and returns how many each has.
func (k keyValue) exchange(f *Fake, me, all, devices int, timeout int32) (counts []int, _ *pjrt.Error) {
	mine := fmt.Sprintf("topology/%d", me)
	if _, err := k.tryGet(f, mine); err == nil || err.Code != pjrt.NotFound {
		return nil, bad("TryGet of a key that nobody put: %v", err)
	}
	if err := k.put(f, mine, fmt.Sprintf("process %d: %d devices", me, devices)); err != nil {
		return nil, err
	}
	for i := range all {
		value, err := k.get(f, fmt.Sprintf("topology/%d", i), timeout)
		if err != nil {
			return nil, err
		}
		n := 0
		if _, err := fmt.Sscanf(value, fmt.Sprintf("process %d: %%d devices", i), &n); err != nil {
			return nil, bad("process %d said %q", i, value)
		}
		counts = append(counts, n)
	}
	_, err := k.tryGet(f, mine)
	return counts, err
}

func clientFunctions(table []uintptr) {
	set(table, capi.ClientCreate, func(f *Fake, a *capi.ClientCreateArgs) *pjrt.Error {
		values, err := readValues(a.CreateOptions, a.NumOptions)
		if err != nil {
			return err
		}
		f.clientOptions = values
		number := func(name string, none int) int {
			if n, ok := values[name].(int64); ok {
				return int(n)
			}
			return none
		}
		me, all, devices := number("node_id", 0), number("num_nodes", 1), f.options.Devices
		if visible, ok := values["visible_devices"].([]int64); ok {
			devices = len(visible)
		}
		counts := slices.Repeat([]int{devices}, all)
		if a.KvGetCallback != 0 {
			over := make(chan *pjrt.Error)
			f.mu.Unlock()
			threads()(func() {
				var err *pjrt.Error
				counts, err = keyValue{*a}.exchange(f, me, all, devices, int32(number("timeout", 10_000)))
				over <- err
			})
			err := <-over
			f.mu.Lock()
			if err != nil {
				return err
			}
		}
		c := &client{}
		if all > 1 && a.KvGetCallback != 0 {
			c.store = &keyValue{*a}
		}
		for process, n := range counts {
			for number := range n {
				d := &device{id: len(c.devices), process: process, number: number, local: process == me}
				f.next += 64
				d.handle = f.next
				for i, kind := range f.kinds {
					f.next += 64
					f.memories[f.next] = &memory{d.id*len(f.kinds) + i, kind, d}
					d.memories = append(d.memories, f.next)
				}
				c.devices, c.list = append(c.devices, d), append(c.list, d.handle)
			}
		}
		a.Client = f.add(c)
		return nil
	})
	set(table, capi.ClientDestroy, func(f *Fake, a *capi.ClientDestroyArgs) *pjrt.Error { return free[*client](f, a.Client) })
	set(table, capi.ClientPlatformName, func(f *Fake, a *capi.ClientPlatformNameArgs) *pjrt.Error {
		a.PlatformName, a.PlatformNameSize = f.text(cmp.Or(f.options.Platform, "fake"))
		return nil
	})
	set(table, capi.ClientPlatformVersion, func(f *Fake, a *capi.ClientPlatformVersionArgs) *pjrt.Error {
		a.PlatformVersion, a.PlatformVersionSize = f.text("fake 1")
		return nil
	})
	set(table, capi.ClientProcessIndex, func(f *Fake, a *capi.ClientProcessIndexArgs) *pjrt.Error {
		c, err := of[*client](f, a.Client)
		if err == nil {
			i := slices.IndexFunc(c.devices, func(d *device) bool { return d.local })
			a.ProcessIndex = int32(c.devices[i].process)
		}
		return err
	})
	set(table, capi.ClientDevices, func(f *Fake, a *capi.ClientDevicesArgs) *pjrt.Error {
		c, err := of[*client](f, a.Client)
		if err == nil {
			a.Devices, a.NumDevices = unsafe.Pointer(&c.list[0]), uintptr(len(c.list))
		}
		return err
	})
	set(table, capi.ClientDmaMap, func(f *Fake, a *capi.ClientDmaMapArgs) *pjrt.Error {
		f.mapped[uintptr(a.Data)] = a.Size
		return nil
	})
	set(table, capi.ClientDmaUnmap, func(f *Fake, a *capi.ClientDmaUnmapArgs) *pjrt.Error {
		if f.mapped[uintptr(a.Data)] == 0 {
			return bad("unmapped memory")
		}
		delete(f.mapped, uintptr(a.Data))
		return nil
	})
	set(table, capi.ClientCompile, func(f *Fake, a *capi.ClientCompileArgs) *pjrt.Error {
		c, err := of[*client](f, a.Client)
		if err != nil {
			return err
		}
		program := (*capi.Program)(a.Program)
		if err := checkSize(program); err != nil {
			return err
		}
		if format := string(array[byte](program.Format, program.FormatSize)); format != "mlir" {
			return bad("format %q", format)
		}
		if f.compileOptions, err = readCompileOptions(array[byte](a.CompileOptions, a.CompileOptionsSize)); err != nil {
			return err
		}
		text := string(array[byte](program.Code, program.CodeSize))
		a.Executable, err = f.load(c, text, f.compileOptions)
		if err == nil {
			x := f.objects[a.Executable].(*loaded)
			x.stats = x.program.Memory
			if compiled := x.program.Compiled; compiled != nil {
				f.mu.Unlock()
				compiled()
				f.mu.Lock()
			}
		}
		return err
	})
	set(table, capi.ExecutableDeserializeAndLoad, func(f *Fake, a *capi.ExecutableDeserializeAndLoadArgs) *pjrt.Error {
		c, err := of[*client](f, a.Client)
		if err != nil {
			return err
		}
		text, ok := bytes.CutPrefix(array[byte](a.SerializedExecutable, a.SerializedExecutableSize), []byte("compiled: "))
		if !ok {
			return bad("this is no serialized executable")
		}
		a.LoadedExecutable, err = f.load(c, string(text), CompileOptions{Replicas: 1, Partitions: 1})
		return err
	})
}

// load makes an executable of the program with a text.
func (f *Fake) load(c *client, text string, options CompileOptions) (uintptr, *pjrt.Error) {
	program, ok := f.programs[text]
	if !ok {
		return 0, bad("cannot parse the program %q", text)
	}
	ids := options.Devices
	if ids == nil {
		for i := range options.Replicas * options.Partitions {
			ids = append(ids, i)
		}
	}
	x := &loaded{text: text, program: program}
	for _, id := range ids {
		if id < 0 || id >= len(c.devices) {
			return 0, bad("there is no device %d", id)
		}
		if d := c.devices[id]; d.local {
			x.devices, x.list = append(x.devices, d), append(x.list, d.handle)
		}
	}
	return f.add(x), nil
}

// findDevice returns the device of a handle.
func (f *Fake) findDevice(handle uintptr) (*device, *pjrt.Error) {
	for _, o := range f.objects {
		if c, ok := o.(*client); ok {
			for _, d := range c.devices {
				if d.handle == handle {
					return d, nil
				}
			}
		}
	}
	return nil, bad("%#x is no device", handle)
}
