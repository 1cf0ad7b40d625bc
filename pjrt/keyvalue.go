// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// KeyValueStore is where the processes of a client exchange what they must know of each other: the topology when the client
// is made, and NCCL's ids when a group of devices first communicates, so also while programs are compiled and run. Its
// methods are called by threads of the plugin, several at a time.
//
// An error that is or wraps an [*Error] keeps its code.
type KeyValueStore interface {
	// Get waits for the key until ctx is done. The deadline is the plugin's. It should fail at once if the process that
	// would put the key is gone.
	Get(ctx context.Context, key string) ([]byte, error)

	// TryGet does not wait: it returns an [*Error] with the code NotFound if there is no such key.
	TryGet(key string) ([]byte, error)

	// Put sets a key, for all processes.
	Put(key string, value []byte) error
}

// keys gives the numbers by which C names things of Go.
var keys atomic.Uintptr

// served is a store that C may call.
type served struct {
	store  KeyValueStore
	ctx    context.Context
	cancel context.CancelCauseFunc
}

var stores sync.Map // uintptr → *served

// serveStore makes a store known to the callbacks, and returns its key.
func serveStore(store KeyValueStore) uintptr {
	s := &served{store: store}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	key := keys.Add(1)
	stores.Store(key, s)
	return key
}

// cancelStore lets calls of the store that wait fail, now and later.
func cancelStore(key uintptr, cause error) {
	if s, ok := stores.Load(key); ok {
		s.(*served).cancel(cause)
	}
}

func dropStore(key uintptr) {
	cancelStore(key, ErrClosed)
	stores.Delete(key)
}

func storeOf(key uintptr) (*served, error) {
	s, ok := stores.Load(key)
	if !ok {
		return nil, errors.WithMessage(ErrClosed, "the client of this key-value store")
	}
	return s.(*served), nil
}

// given are the values that C was given and has not yet deleted, by address.
var given sync.Map // uintptr → *gift

type gift struct {
	value []byte
	pin   runtime.Pinner
}

// give makes a value of Go one that C may read until it calls the deleter.
func give(value []byte) unsafe.Pointer {
	g := &gift{value: append(value[:len(value):len(value)], 0)} // a copy, and an address even if it is empty
	p := pinned(&g.pin, g.value)
	given.Store(uintptr(p), g)
	return p
}

// keyValue holds the C functions of the key-value interface.
type keyValue struct{ get, tryGet, put uintptr }

// keyValueCallbacks makes them once: purego never frees a callback and has a limited number.
var keyValueCallbacks = sync.OnceValue(func() keyValue {
	deleter := purego.NewCallback(func(value uintptr) uintptr {
		if g, ok := given.LoadAndDelete(value); ok {
			g.(*gift).pin.Unpin()
		}
		return 0
	})
	return keyValue{
		get: purego.NewCallback(func(a *capi.KeyValueGetCallbackArgs) uintptr {
			value, err := get(a.UserArg, cString(a.Key, a.KeySize), time.Duration(a.TimeoutInMs)*time.Millisecond)
			if err != nil {
				return cError(a.CallbackError, err)
			}
			a.Value, a.ValueSize, a.ValueDeleterCallback = give(value), uintptr(len(value)), deleter
			return 0
		}),
		tryGet: purego.NewCallback(func(a *capi.KeyValueTryGetCallbackArgs) uintptr {
			s, err := storeOf(a.UserArg)
			var value []byte
			if err == nil {
				value, err = s.store.TryGet(cString(a.Key, a.KeySize))
			}
			if err != nil {
				return cError(a.CallbackError, err)
			}
			a.Value, a.ValueSize, a.ValueDeleterCallback = give(value), uintptr(len(value)), deleter
			return 0
		}),
		put: purego.NewCallback(func(a *capi.KeyValuePutCallbackArgs) uintptr {
			s, err := storeOf(a.UserArg)
			if err == nil {
				err = s.store.Put(cString(a.Key, a.KeySize), []byte(cString(a.Value, a.ValueSize)))
			}
			if err != nil {
				return cError(a.CallbackError, err)
			}
			return 0
		}),
	}
})

func get(key uintptr, name string, timeout time.Duration) ([]byte, error) {
	s, err := storeOf(key)
	if err != nil {
		return nil, err
	}
	ctx := s.ctx
	if timeout >= 0 { // C writes an endless one as -1
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	value, err := s.store.Get(ctx, name)
	if cause := context.Cause(s.ctx); err != nil && cause != nil {
		err = errors.WithMessagef(cause, "waiting for the key %q", name)
	}
	return value, err
}

// cError makes a PJRT_Error of an error, by the function that C gave for that: a pointer to a function pointer.
func cError(callbackError uintptr, err error) uintptr {
	code := Internal
	var known *Error
	switch {
	case errors.As(err, &known):
		code = known.Code
	case errors.Is(err, context.DeadlineExceeded):
		code = DeadlineExceeded
	case errors.Is(err, context.Canceled), errors.Is(err, ErrClosed):
		code = Code(capi.ErrorCodeCANCELLED)
	}
	message := append([]byte(err.Error()), 0)
	failed, _, _ := purego.SyscallN(*(*uintptr)(cPointer(callbackError)), uintptr(code), uintptr(unsafe.Pointer(&message[0])), uintptr(len(message)-1))
	runtime.KeepAlive(message)
	return failed
}
