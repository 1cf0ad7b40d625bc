// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrttest

import (
	"sync"
	"unsafe"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// session is a profiler.
type session struct{ running, ran bool }

// profiler is the table of the extension for profiles.
var profiler = sync.OnceValue(func() *capi.ProfilerAPI {
	const prefix = "PLUGIN_Profiler_"
	api := &capi.ProfilerAPI{}
	api.StructSize = unsafe.Sizeof(*api)
	api.ErrorMessage = callback(prefix+"Error_Message", func(f *Fake, a *capi.ProfilerErrorMessageArgs) *pjrt.Error {
		failed, err := of[*failure](f, a.Error)
		if err != nil {
			panic(err)
		}
		a.Message, a.MessageSize = f.text(failed.err.Message)
		return nil
	})
	api.ErrorDestroy = callback(prefix+"Error_Destroy", func(f *Fake, a *capi.ProfilerErrorArgs) *pjrt.Error {
		delete(f.objects, a.Error)
		return nil
	})
	api.Create = callback(prefix+"Create", func(f *Fake, a *capi.ProfilerCreateArgs) *pjrt.Error {
		a.Profiler = f.add(&session{})
		return nil
	})
	// on is a function that takes the profiler alone.
	on := func(name string, do func(f *Fake, s *session) *pjrt.Error) uintptr {
		return callback(prefix+name, func(f *Fake, a *capi.ProfilerArgs) *pjrt.Error {
			s, err := of[*session](f, a.Profiler)
			if err != nil {
				return err
			}
			return do(f, s)
		})
	}
	api.Start = on("Start", func(f *Fake, s *session) *pjrt.Error {
		s.running = true
		return nil
	})
	api.Stop = on("Stop", func(f *Fake, s *session) *pjrt.Error {
		s.running, s.ran = false, s.running
		return nil
	})
	api.Destroy = callback(prefix+"Destroy", func(f *Fake, a *capi.ProfilerArgs) *pjrt.Error {
		delete(f.objects, a.Profiler)
		return nil
	})
	api.CollectData = callback(prefix+"CollectData", func(f *Fake, a *capi.ProfilerCollectDataArgs) *pjrt.Error {
		s, err := of[*session](f, a.Profiler)
		switch {
		case err != nil:
			return err
		case !s.ran:
			return &pjrt.Error{Code: pjrt.Internal, Message: "the profiler did not run"}
		}
		f.profiled = append(f.options.Profile(), 0) // as XLA's does
		a.Buffer, a.BufferSize = unsafe.Pointer(unsafe.SliceData(f.profiled)), uintptr(len(f.profiled))
		return nil
	})
	return api
})
