package pjrttest

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// arguments is a pointer to the struct of arguments of a C function.
type arguments[T any] interface {
	*T
	SetSize()
}

// checkSize compares struct_size, the first field, with the size of the struct in the header.
func checkSize[T any, A arguments[T]](a A) *pjrt.Error {
	var want T
	A(&want).SetSize()
	if got, want := *(*uintptr)(unsafe.Pointer((*T)(a))), *(*uintptr)(unsafe.Pointer(&want)); got != want {
		return bad("struct_size of %T is %d, not %d", want, got, want)
	}
	return nil
}

// callback makes a C function of a Go function, which runs with the fake locked.
func callback[T any, A arguments[T]](name string, do func(f *Fake, a A) *pjrt.Error) uintptr {
	return purego.NewCallback(func(a *T) uintptr {
		f := current.Load()
		f.mu.Lock()
		defer f.mu.Unlock()
		err := checkSize[T, A](A(a))
		f.called[name] = true
		fault := f.faults[name]
		delete(f.faults, name)
		frees := strings.HasSuffix(name, "_Destroy") || strings.HasSuffix(name, "Unmap") // which it does even if it fails
		if err == nil && (fault == nil || frees) {
			err = do(f, A(a))
		}
		if err == nil {
			err = fault
		}
		if err == nil {
			return 0
		}
		return f.add(&failure{err})
	})
}

// functions is the table, which is made once: callbacks are never freed.
var functions = sync.OnceValue(func() []uintptr {
	table := make([]uintptr, capi.NumFuncs)
	errorFunctions(table)
	pluginFunctions(table)
	eventFunctions(table)
	clientFunctions(table)
	deviceFunctions(table)
	executableFunctions(table)
	bufferFunctions(table)
	return table
})

func set[T any, A arguments[T]](table []uintptr, fn capi.Func, do func(f *Fake, a A) *pjrt.Error) {
	table[fn] = callback[T, A](fn.String(), do)
}

func errorFunctions(table []uintptr) {
	set(table, capi.ErrorMessage, func(f *Fake, a *capi.ErrorMessageArgs) *pjrt.Error {
		failed, err := of[*failure](f, a.Error)
		if err != nil {
			panic(err)
		}
		a.Message, a.MessageSize = f.text(failed.err.Message)
		return nil
	})
	set(table, capi.ErrorGetCode, func(f *Fake, a *capi.ErrorGetCodeArgs) *pjrt.Error {
		failed, err := of[*failure](f, a.Error)
		if err != nil {
			panic(err)
		}
		a.Code = int32(failed.err.Code)
		return nil
	})
	set(table, capi.ErrorDestroy, func(f *Fake, a *capi.ErrorDestroyArgs) *pjrt.Error {
		if err := free[*failure](f, a.Error); err != nil {
			panic(err)
		}
		return nil
	})
}

func pluginFunctions(table []uintptr) {
	set(table, capi.PluginInitialize, func(f *Fake, a *capi.PluginInitializeArgs) *pjrt.Error { return nil })
	set(table, capi.PluginAttributes, func(f *Fake, a *capi.PluginAttributesArgs) *pjrt.Error {
		if f.attributes == nil {
			list := []int64{1, 14, 0}
			f.keep = append(f.keep, list)
			name := func(s string, kind int32, value uint64, n uintptr) {
				v := capi.NamedValue{Type: kind, Value: value, ValueSize: n}
				v.SetSize()
				v.Name, v.NameSize = f.text(s)
				f.attributes = append(f.attributes, v)
			}
			s, n := f.text("fake")
			name("kind", capi.NamedValueKString, uint64(uintptr(s)), n)
			name("xla_version", capi.NamedValueKInt64, 2, 1)
			name("stablehlo_current_version", capi.NamedValueKInt64List, uint64(uintptr(unsafe.Pointer(&list[0]))), 3)
			name("share", capi.NamedValueKFloat, uint64(math.Float32bits(0.5)), 1)
			name("works", capi.NamedValueKBool, 1, 1)
			name("of a later version", 99, 0, 1)
		}
		a.Attributes, a.NumAttributes = unsafe.Pointer(&f.attributes[0]), uintptr(len(f.attributes))
		return nil
	})
}

func eventFunctions(table []uintptr) {
	set(table, capi.EventDestroy, func(f *Fake, a *capi.EventDestroyArgs) *pjrt.Error { return free[*event](f, a.Event) })
	set(table, capi.EventIsReady, func(f *Fake, a *capi.EventIsReadyArgs) *pjrt.Error {
		e, err := of[*event](f, a.Event)
		if err == nil {
			a.IsReady = e.isReady()
		}
		return err
	})
	set(table, capi.EventAwait, func(f *Fake, a *capi.EventAwaitArgs) *pjrt.Error {
		e, err := of[*event](f, a.Event)
		if err != nil {
			return err
		}
		f.mu.Unlock()
		<-e.done
		f.mu.Lock()
		return e.err
	})
	set(table, capi.EventOnReady, func(f *Fake, a *capi.EventOnReadyArgs) *pjrt.Error {
		e, err := of[*event](f, a.Event)
		if err != nil {
			return err
		}
		function, key := a.Callback, a.UserArg
		start := threads()
		start(func() {
			<-e.done
			var failed uintptr
			if e.err != nil {
				f.mu.Lock()
				failed = f.add(&failure{e.err})
				f.mu.Unlock()
			}
			purego.SyscallN(function, failed, key)
		})
		return nil
	})
}

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

// exchange tells the other processes of this one, and waits for them.
func (k keyValue) exchange(f *Fake, me, all int, timeout int32) *pjrt.Error {
	if _, err := k.tryGet(f, fmt.Sprintf("topology/%d", me)); err == nil || err.Code != pjrt.NotFound {
		return bad("TryGet of a key that nobody put: %v", err)
	}
	if err := k.put(f, fmt.Sprintf("topology/%d", me), fmt.Sprint("process ", me)); err != nil {
		return err
	}
	for i := range all {
		if value, err := k.get(f, fmt.Sprintf("topology/%d", i), timeout); err != nil {
			return err
		} else if value != fmt.Sprint("process ", i) {
			return bad("process %d said %q", i, value)
		}
	}
	_, err := k.tryGet(f, fmt.Sprintf("topology/%d", me))
	return err
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
		me, all := number("node_id", 0), number("num_nodes", 1)
		if a.KvGetCallback != 0 {
			failed := make(chan *pjrt.Error)
			f.mu.Unlock()
			threads()(func() { failed <- keyValue{*a}.exchange(f, me, all, int32(number("timeout", 10_000))) })
			err := <-failed
			f.mu.Lock()
			if err != nil {
				return err
			}
		}
		c := &client{}
		for process := range all {
			for range f.options.Devices {
				d := &device{id: len(c.devices), process: process, local: process == me}
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
			a.LocalHardwareId = int32(d.id % f.options.Devices)
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
		for _, o := range f.objects {
			if b, ok := o.(*buffer); ok && b.on == d.memories[0] && !b.donated {
				a.BytesInUse += int64(size(b.typ, b.dims))
			}
		}
		a.BytesLimit, a.BytesLimitIsSet = 1<<30, true
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
	for d, args := range all {
		memories := x.devices[d].memories
		done := newEvent()
		var outputs []*buffer
		for i, o := range x.program.Outputs {
			on := memories[max(0, slices.Index(f.kinds, o.MemoryKind))]
			outputs = append(outputs, &buffer{typ: int32(o.Type), dims: o.Dims, on: on, ready: done})
			array[uintptr](address(outLists[d]), uintptr(len(x.program.Outputs)))[i] = f.add(outputs[i])
		}
		var donated []bool
		for _, i := range x.program.Donates {
			donated = append(donated, i >= 0 && !slices.Contains(keep, int64(i)))
			if donated[len(donated)-1] {
				args[i].donated = true
			}
		}
		if events != nil {
			events[d] = f.add(done)
		}
		f.later(func() {
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
	return nil
}

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
		if from := meet(f, array[int64](a.TransferKeys, 1)[0], b); from != nil {
			f.later(func() { deliver(from, b) })
		}
		return nil
	})
	return send, receive
})
