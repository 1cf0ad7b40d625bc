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

// Profiler collects what devices of this process do, from [Plugin.Profile] until Stop. A plugin has one at a time.
type Profiler struct {
	plugin *Plugin
	api    *capi.ProfilerAPI
	ptr    uintptr
}

// Profiles tells whether the plugin can collect what devices do ([Plugin.Profile]).
func (p *Plugin) Profiles() bool {
	_, err := p.profiler()
	return err == nil
}

// profiler returns the functions of the extension.
func (p *Plugin) profiler() (*capi.ProfilerAPI, error) {
	if e := p.extensions[capi.ExtensionTypeProfiler]; e != 0 {
		x := (*capi.ProfilerExtension)(cPointer(e))
		if x.Base.StructSize >= unsafe.Offsetof(x.API)+unsafe.Sizeof(x.API) && x.API != 0 {
			if api := (*capi.ProfilerAPI)(cPointer(x.API)); api.StructSize >= unsafe.Sizeof(*api) {
				return api, nil
			}
		}
	}
	return nil, errors.Errorf("pjrt: the plugin %s has no profiler", p.path)
}

// Profile begins to collect what devices do. options is a serialized ProfileOptions of TensorFlow's; nil: the plugin's own choice, which may collect what the
// host does too.
func (p *Plugin) Profile(options []byte) (*Profiler, error) {
	api, err := p.profiler()
	if err != nil {
		return nil, err
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	create := &capi.ProfilerCreateArgs{Options: pinned(&pin, append(slices.Clip(options), 0)), OptionsSize: uintptr(len(options))}
	create.SetSize()
	if err := p.profile(api, api.Create, unsafe.Pointer(create), "create"); err != nil {
		return nil, err
	}
	x := &Profiler{p, api, create.Profiler}
	if err := x.call(api.Start, "start"); err != nil {
		return nil, joined(err, x.call(api.Destroy, "destroy"))
	}
	return x, nil
}

// Stop ends it and returns what was collected: a serialized XSpace of TensorFlow's.
func (x *Profiler) Stop() (space []byte, err error) {
	if x.ptr == 0 {
		return nil, errors.WithMessage(ErrClosed, "pjrt: this profiler was stopped")
	}
	err = x.call(x.api.Stop, "stop")
	if err == nil {
		a := &capi.ProfilerCollectDataArgs{Profiler: x.ptr}
		a.SetSize()
		if err = x.plugin.profile(x.api, x.api.CollectData, unsafe.Pointer(a), "collect_data"); err == nil {
			space = slices.Clone(cSlice[byte](a.Buffer, a.BufferSize)) // the profiler's
		}
	}
	err = joined(err, x.call(x.api.Destroy, "destroy"))
	x.ptr = 0
	return space, err
}

// call calls a function that takes the profiler alone.
func (x *Profiler) call(function uintptr, name string) error {
	a := &capi.ProfilerArgs{Profiler: x.ptr}
	a.SetSize()
	return x.plugin.profile(x.api, function, unsafe.Pointer(a), name)
}

// profile calls a function of the extension, whose errors are not those of the plugin's other functions.
func (p *Plugin) profile(api *capi.ProfilerAPI, function uintptr, args unsafe.Pointer, name string) error {
	failed, _, _ := purego.SyscallN(function, uintptr(args))
	runtime.KeepAlive(args)
	if failed == 0 {
		return nil
	}
	m := &capi.ProfilerErrorMessageArgs{Error: failed}
	m.SetSize()
	purego.SyscallN(api.ErrorMessage, uintptr(unsafe.Pointer(m)))
	e := &Error{Code: Internal, Message: cString(m.Message, m.MessageSize), Func: "PLUGIN_Profiler " + name}
	d := &capi.ProfilerErrorArgs{Error: failed}
	d.SetSize()
	purego.SyscallN(api.ErrorDestroy, uintptr(unsafe.Pointer(d)))
	runtime.KeepAlive(d)
	return e
}
