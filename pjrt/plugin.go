// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"maps"
	"math/bits"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// minMinor is the oldest API that will do: from 0.72 on, compiled programs know their peak memory.
const minMinor = 72

// required are the functions that a plugin must have. Others may be missing: then the methods that need them say so.
var required = []capi.Func{
	capi.ErrorDestroy, capi.ErrorMessage, capi.ErrorGetCode, capi.PluginInitialize, capi.PluginAttributes,
	capi.EventDestroy, capi.EventIsReady, capi.EventAwait, capi.EventOnReady,
	capi.ClientCreate, capi.ClientDestroy, capi.ClientPlatformName, capi.ClientPlatformVersion, capi.ClientProcessIndex,
	capi.ClientDevices, capi.ClientCompile, capi.ClientBufferFromHostBuffer,
	capi.DeviceDescriptionId, capi.DeviceDescriptionProcessIndex, capi.DeviceDescriptionAttributes, capi.DeviceDescriptionKind,
	capi.DeviceGetDescription, capi.DeviceIsAddressable, capi.DeviceLocalHardwareId, capi.DeviceAddressableMemories, capi.DeviceDefaultMemory,
	capi.MemoryId, capi.MemoryKind,
	capi.ExecutableDestroy, capi.ExecutableName, capi.ExecutableNumOutputs, capi.ExecutableSerialize, capi.ExecutableDeserializeAndLoad,
	capi.LoadedExecutableDestroy, capi.LoadedExecutableGetExecutable, capi.LoadedExecutableAddressableDevices, capi.LoadedExecutableExecute,
	capi.BufferDestroy, capi.BufferElementType, capi.BufferDimensions, capi.BufferDevice, capi.BufferMemory, capi.BufferIsDeleted,
	capi.BufferToHostBuffer, capi.BufferReadyEvent,
}

// Plugin is a PJRT plugin in this process. It is never unloaded, because XLA cannot be.
type Plugin struct {
	path         string
	major, minor int
	functions    []uintptr // the table of the plugin, which may be shorter or longer than the header's
	extensions   map[int32]uintptr
	attributes   map[string]any

	closed bool // guarded by openClients
}

// initialized holds the tables of functions whose plugins were initialized, with the error of that. C allows it once.
var initialized struct {
	sync.Mutex
	errs map[uintptr]error
}

// openClients holds the clients of all plugins. It also keeps them reachable, with the memory that C uses through them.
var openClients struct {
	sync.Mutex
	set map[*Client]bool
}

// Load loads the plugin of a shared library, which [Find] finds, and refuses it if its API is too old or unknown ([VersionError]).
// For a CUDA plugin it first loads NVIDIA's libraries that lie beside it, and has XLA_FLAGS name their folder.
func Load(path string) (*Plugin, error) {
	prepareCUDA(path)
	library, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, errors.Wrapf(err, "pjrt: the plugin %s cannot be loaded (ldd shows the libraries that it needs)", path)
	}
	get, err := purego.Dlsym(library, "GetPjrtApi")
	if err != nil {
		return nil, errors.Wrapf(err, "pjrt: %s is no PJRT plugin: it has no function GetPjrtApi", path)
	}
	api, _, _ := purego.SyscallN(get)
	return FromAPI(path, api)
}

// FromAPI returns the plugin with the table of functions (a PJRT_Api) at an address, for plugins that are linked into the
// process, and for tests. The path is for messages.
func FromAPI(path string, api uintptr) (*Plugin, error) {
	if api == 0 {
		return nil, errors.Errorf("pjrt: the plugin %s gave no table of functions", path)
	}
	if bits.UintSize != 64 {
		return nil, errors.New("pjrt: plugins need a 64-bit machine")
	}
	head := (*capi.Head)(cPointer(api))
	p := &Plugin{path: path, major: int(head.Version.MajorVersion), minor: int(head.Version.MinorVersion)}
	if p.major != capi.Major || p.minor < minMinor {
		return nil, &VersionError{Path: path, Major: p.major, Minor: p.minor}
	}
	if head.StructSize > unsafe.Sizeof(*head) {
		p.functions = cSlice[uintptr](cPointer(api+unsafe.Sizeof(*head)), (head.StructSize-unsafe.Sizeof(*head))/unsafe.Sizeof(api))
	}
	for _, f := range required {
		if !p.has(f) {
			return nil, &VersionError{Path: path, Major: p.major, Minor: p.minor, Missing: f.String()}
		}
	}
	p.extensions = map[int32]uintptr{}
	for e := head.ExtensionStart; e != 0; {
		base := (*capi.ExtensionBase)(cPointer(e))
		p.extensions[base.Type] = e
		e = uintptr(base.Next)
	}
	if err := p.initialize(api); err != nil {
		return nil, err
	}
	a := &capi.PluginAttributesArgs{}
	if err := call(p, capi.PluginAttributes, a); err != nil {
		return nil, err
	}
	p.attributes = goValues(a.Attributes, a.NumAttributes)
	return p, nil
}

func (p *Plugin) initialize(api uintptr) error {
	initialized.Lock()
	defer initialized.Unlock()
	err, done := initialized.errs[api]
	if !done {
		err = call(p, capi.PluginInitialize, &capi.PluginInitializeArgs{})
		if initialized.errs == nil {
			initialized.errs = map[uintptr]error{}
		}
		initialized.errs[api] = err
	}
	return err
}

// Path returns where the plugin came from.
func (p *Plugin) Path() string { return p.path }

// Version returns the version of the plugin's API.
func (p *Plugin) Version() (major, minor int) { return p.major, p.minor }

// Attributes returns what the plugin says of itself, such as the versions of StableHLO that it takes. A value is a string,
// an int64, a []int64, a float32 or a bool.
func (p *Plugin) Attributes() map[string]any { return maps.Clone(p.attributes) }

// Close ends the use of the plugin. It fails while clients are open. The library stays in the process.
func (p *Plugin) Close() error {
	openClients.Lock()
	defer openClients.Unlock()
	open := 0
	for c := range openClients.set {
		if c.plugin == p {
			open++
		}
	}
	if open > 0 {
		return errors.Wrapf(ErrStillOpen, "pjrt: the plugin %s has %s", p.path, words.Count(open, "open client"))
	}
	p.closed = true
	return nil
}

// has tells whether the plugin has a function.
func (p *Plugin) has(f capi.Func) bool { return int(f) < len(p.functions) && p.functions[f] != 0 }

// arguments is a pointer to the struct of arguments of a C function.
type arguments[T any] interface {
	*T
	SetSize()
}

// call calls a function of the plugin. What a points to must be pinned or be memory of C; a itself need not, because it
// escapes to the heap and stays alive until C returns.
func call[T any, A arguments[T]](p *Plugin, f capi.Func, a A) error {
	if !p.has(f) {
		return &Error{Code: Unimplemented, Func: f.String(), Message: "the plugin " + p.path + " does not have this function"}
	}
	a.SetSize()
	failed, _, _ := purego.SyscallN(p.functions[f], uintptr(unsafe.Pointer((*T)(a))))
	runtime.KeepAlive(a)
	return p.takeError(failed, f.String())
}

// takeError turns a PJRT_Error into one of Go, and frees it. A null one is no error.
func (p *Plugin) takeError(failed uintptr, function string) error {
	if failed == 0 {
		return nil
	}
	// These functions cannot fail.
	message, code, destroy := &capi.ErrorMessageArgs{Error: failed}, &capi.ErrorGetCodeArgs{Error: failed}, &capi.ErrorDestroyArgs{Error: failed}
	message.SetSize()
	code.SetSize()
	destroy.SetSize()
	purego.SyscallN(p.functions[capi.ErrorMessage], uintptr(unsafe.Pointer(message)))
	purego.SyscallN(p.functions[capi.ErrorGetCode], uintptr(unsafe.Pointer(code)))
	err := &Error{Code: Code(code.Code), Message: cString(message.Message, message.MessageSize), Func: function}
	purego.SyscallN(p.functions[capi.ErrorDestroy], uintptr(unsafe.Pointer(destroy)))
	return err
}
