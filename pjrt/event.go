// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ebitengine/purego"

	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// Event is the end of something asynchronous: an execution, a copy, a buffer becoming ready. It may end in an error.
type Event struct {
	handle
	of string // what ends, such as "execution"

	// The memory of Go that C uses until the event is ready.
	guards bool
	memory runtime.Pinner

	// A goroutine that waits, for waits that can be cancelled.
	once    sync.Once
	started atomic.Bool
	done    chan struct{} // closed when it ends
	err     error         // valid then
}

// newEvent owns an event of C. A null one has happened already: it is nil, and a nil event is ready.
func newEvent(c *Client, ptr uintptr, of string, memory ...[]byte) *Event {
	if ptr == 0 {
		return nil
	}
	e := &Event{of: of, done: make(chan struct{})}
	for _, m := range memory {
		if len(m) > 0 {
			e.guards = true
			e.memory.Pin(&m[0])
		}
	}
	e.own(c, ptr, e)
	return e
}

// Ready tells whether the event has happened, without waiting.
func (e *Event) Ready() (bool, error) {
	if e == nil {
		return true, nil
	}
	ptr, err := e.acquire()
	if err != nil {
		return false, err
	}
	defer e.release()
	a := &capi.EventIsReadyArgs{Event: ptr}
	err = call(e.client.plugin, capi.EventIsReady, a)
	return a.IsReady, err
}

// Wait waits until the event has happened, and returns its error, or until ctx is done. What the event stands for goes on in
// that case: C cannot be interrupted. With a context that is never done it costs least.
func (e *Event) Wait(ctx context.Context) error {
	if e == nil {
		return nil
	}
	ptr, err := e.acquire()
	if err != nil {
		return err
	}
	direct := ctx.Done() == nil
	if !direct {
		if direct, err = e.Ready(); err != nil {
			e.release()
			return err
		}
	}
	if direct {
		defer e.release()
		return e.await(ptr)
	}
	e.watch(ptr)
	e.release()
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watch starts the goroutine that waits, which keeps the event until it has happened. The event must be acquired.
func (e *Event) watch(ptr uintptr) {
	e.once.Do(func() {
		e.state.Add(1) // as acquire does; the event may be closing, but is in use
		e.started.Store(true)
		go func() {
			e.err = e.await(ptr)
			e.release() // before anybody knows, so that Close after Wait frees the event at once
			close(e.done)
		}()
	})
}

func (e *Event) await(ptr uintptr) error {
	return call(e.client.plugin, capi.EventAwait, &capi.EventAwaitArgs{Event: ptr})
}

// OnReady has f called once the event has happened, with its error, by a thread of the plugin. f must not wait for anything.
// A goroutine that waits is faster; this is for very many events.
func (e *Event) OnReady(f func(error)) error {
	if e == nil {
		f(nil)
		return nil
	}
	ptr, err := e.acquire()
	if err != nil {
		return err
	}
	defer e.release()
	key := keys.Add(1)
	waiting.Store(key, &readyFunc{e.client.plugin, f})
	err = call(e.client.plugin, capi.EventOnReady, &capi.EventOnReadyArgs{Event: ptr, Callback: readyCallback(), UserArg: key})
	if err != nil {
		waiting.Delete(key)
	}
	return err
}

// waiting are the functions given to OnReady, by the key that C passes back.
var waiting sync.Map // uintptr → *readyFunc

type readyFunc struct {
	plugin *Plugin
	f      func(error)
}

var readyCallback = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(failed, key uintptr) uintptr {
		if r, ok := waiting.LoadAndDelete(key); ok {
			r := r.(*readyFunc)
			r.f(r.plugin.takeError(failed, capi.EventOnReady.String()))
		}
		return 0
	})
})

// Close frees the event; what it stands for goes on. Memory of Go that C still uses stays pinned until C is done, and the
// client counts the event as open until then.
func (e *Event) Close() error {
	if e == nil {
		return nil
	}
	if e.guards || e.started.Load() {
		if ptr, err := e.acquire(); err == nil {
			ready, err := e.Ready()
			if e.guards && (err != nil || !ready) {
				e.watch(ptr)
			}
			if ready && e.started.Load() {
				<-e.done // it is about to end, and would free the event after this has returned
			}
			e.release()
		}
	}
	return e.handle.Close()
}

// Finish waits for all of the events and closes them, also if one fails or ctx is done. It returns the first error.
func Finish(ctx context.Context, events ...*Event) error {
	var first error
	for _, e := range events {
		err := e.Wait(ctx)
		if closed := e.Close(); err == nil {
			err = closed
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func (e *Event) kind() string     { return "event" }
func (e *Event) describe() string { return "event of " + e.of }

func (e *Event) destroy() error {
	e.memory.Unpin()
	return call(e.client.plugin, capi.EventDestroy, &capi.EventDestroyArgs{Event: e.ptr})
}
