// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrttest

import (
	"math"
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
		f.called[name]++
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
