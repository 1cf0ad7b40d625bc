// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package pjrttest is a PJRT plugin inside the process, made of Go functions: what uses package pjrt can be tested on a machine
// without a GPU, a plugin or a C compiler. For package pjrt it is a plugin like any other: calls go through C's calling
// convention and C's structs.
//
// Programs are Go functions, chosen by the program's text ([Fake.Program]). The fake checks what C would rely on: the sizes of
// structs, handles that exist and are freed once; and it reads and writes host memory as late as a GPU would ([Fake.Hold]).
// What was not freed fails the test.
package pjrttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// Options say what kind of plugin the fake is.
type Options struct {
	Devices      int      // of every process; 0 means 1
	Platform     string   // "" means fake
	Memory       int64    // of a device, in bytes; 0 means 1 GiB
	Major, Minor int      // of the API; 0 means the header's
	Missing      []string // functions, by their C names, that are null in the table
	ShorterBy    int      // how many functions the table lacks at its end
	NoCrossHost  bool     // it lacks the extension for copies between processes
	// Profile is what the profiler collects, an XSpace; nil: there is no profiler.
	Profile func() []byte
	// Optimized is what the compiler makes of a program, an HloModuleProto; nil: a text that is none.
	Optimized func(text string) []byte
}

// Program is a program that the fake can compile.
type Program struct {
	Outputs []pjrt.Output
	Donates []int // output i takes the memory of argument Donates[i], unless that is -1 or the caller keeps it
	Memory  pjrt.CompiledMemory

	// Compiled is called while it is compiled; nil: nothing is.
	Compiled func()
	// Run computes the outputs on one device of the arguments, which it must not change. An error comes with the events.
	Run func(device int, args [][]byte) ([][]byte, error)
}

// Fake is a plugin. A process has one at a time.
type Fake struct {
	options    Options
	table      []uintptr // the PJRT_Api
	extension  []uintptr
	profiler   []uintptr // another one, before that
	profiled   []byte    // what the profiler collected last
	kinds      []string  // of memories
	attributes []capi.NamedValue

	mu       sync.Mutex
	next     uintptr
	objects  map[uintptr]any // all handles that C gave and that are not yet freed
	memories map[uintptr]*memory
	peaks    map[uintptr]int64 // by memory: the most bytes of buffers
	programs map[string]Program
	faults   map[string]*pjrt.Error
	called   map[string]int
	strings  map[string][]byte // that C refers to
	mail     map[int64]*buffer // received or sent, by key
	holding  bool
	held     []func()
	left     bool  // what is not freed is meant
	keep     []any // memory that handles of C refer to

	clientOptions  map[string]any
	compileOptions CompileOptions
	mapped         map[uintptr]uintptr
}

var (
	current atomic.Pointer[Fake]
	only    sync.Mutex // one fake at a time: C's functions do not know which they belong to
)

// New makes the fake of a test. At the end of the test it reports what was not freed.
func New(t testing.TB, options Options) *Fake {
	t.Helper()
	only.Lock()
	f := &Fake{options: options, kinds: []string{"device", "pinned_host"}, next: 1 << 20, objects: map[uintptr]any{}, memories: map[uintptr]*memory{}, peaks: map[uintptr]int64{}, programs: map[string]Program{},
		faults: map[string]*pjrt.Error{}, called: map[string]int{}, strings: map[string][]byte{}, mail: map[int64]*buffer{}, mapped: map[uintptr]uintptr{}}
	f.options.Devices = max(options.Devices, 1)
	functions := functions()
	const head = unsafe.Sizeof(capi.Head{}) / unsafe.Sizeof(uintptr(0))
	f.table = make([]uintptr, int(head)+len(functions)-options.ShorterBy)
	for i := range f.table[head:] {
		if !slices.Contains(options.Missing, capi.Func(i).String()) {
			f.table[int(head)+i] = functions[i]
		}
	}
	api := (*capi.Head)(unsafe.Pointer(&f.table[0]))
	api.StructSize = uintptr(len(f.table)) * unsafe.Sizeof(uintptr(0))
	api.Version.SetSize()
	api.Version.MajorVersion, api.Version.MinorVersion = int32(options.Major), int32(options.Minor)
	if options.Minor == 0 {
		api.Version.MinorVersion = capi.Minor
	}
	if !options.NoCrossHost {
		send, receive := crossHost()
		f.extension = []uintptr{7 * unsafe.Sizeof(uintptr(0)), uintptr(capi.ExtensionTypeCrossHostTransfers), 0, 0, 0, receive, send}
		api.ExtensionStart = uintptr(unsafe.Pointer(&f.extension[0]))
	}
	if options.Profile != nil {
		f.profiler = []uintptr{4 * unsafe.Sizeof(uintptr(0)), uintptr(capi.ExtensionTypeProfiler), api.ExtensionStart, uintptr(unsafe.Pointer(profiler()))}
		api.ExtensionStart = uintptr(unsafe.Pointer(&f.profiler[0]))
	}
	current.Store(f)
	t.Cleanup(func() {
		if left := f.Alive(); len(left) > 0 && !f.left {
			t.Errorf("pjrttest: not freed: %s", strings.Join(left, ", "))
		}
		only.Unlock()
	})
	return f
}

// Devices is how many a process has.
func (f *Fake) Devices() int { return f.options.Devices }

// API returns the address of the fake's table, for [pjrt.FromAPI].
func (f *Fake) API() uintptr { return uintptr(unsafe.Pointer(&f.table[0])) }

// Load loads the fake and has the test close it.
func (f *Fake) Load(t testing.TB) *pjrt.Plugin {
	t.Helper()
	p, err := pjrt.FromAPI("pjrttest", f.API())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil && !f.left {
			t.Error(err)
		}
	})
	return p
}

// Leave says that what is not freed is meant, as in a process that is about to end.
func (f *Fake) Leave() { f.left = true }

// Client makes a client of the fake and has the test close it: what is still open then fails the test.
func (f *Fake) Client(t testing.TB, options pjrt.ClientOptions) *pjrt.Client {
	t.Helper()
	c, err := f.Load(t).NewClient(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Program makes a program known by its text.
func (f *Fake) Program(text string, p Program) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.programs[text] = p
}

// Fail has the next call of a function, by its C name, fail.
func (f *Fake) Fail(function string, code pjrt.Code, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[function] = &pjrt.Error{Code: code, Message: message}
}

// Called returns the functions that were called, by their C names.
func (f *Fake) Called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.called))
}

// Calls returns how often a function was called, by its C name.
func (f *Fake) Calls(function string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.called[function]
}

// Hold keeps copies from and to the host, executions, and their events waiting until Release.
func (f *Fake) Hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holding = true
}

// Release has all that waits happen.
func (f *Fake) Release() {
	f.mu.Lock()
	held := f.held
	f.holding, f.held = false, nil
	f.mu.Unlock()
	for _, happen := range held {
		happen()
	}
}

// later runs something of the device's, or lets it wait. The fake is not locked while it runs.
func (f *Fake) later(happen func()) {
	if f.holding {
		f.held = append(f.held, happen)
		return
	}
	f.mu.Unlock()
	defer f.mu.Lock()
	happen()
}

// Alive lists what C was not asked to free, by kind.
func (f *Fake) Alive() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[string]int{}
	for _, o := range f.objects {
		counts[strings.TrimPrefix(fmt.Sprintf("%T", o), "*pjrttest.")]++
	}
	if len(f.mapped) > 0 {
		counts["host mapping"] = len(f.mapped)
	}
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	return list
}

// InUse returns the bytes of buffers in memories of a kind.
func (f *Fake) InUse(kind string) (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for on, m := range f.memories {
		if m.kind == kind {
			n += f.inUse(on)
		}
	}
	return n
}

// inUse is the bytes of buffers in a memory.
func (f *Fake) inUse(on uintptr) (n int64) {
	for _, o := range f.objects {
		if b, ok := o.(*buffer); ok && !b.donated && b.on == on {
			n += int64(size(b.typ, b.dims))
		}
	}
	return n
}

// ClientOptions returns the options that the last client was made with.
func (f *Fake) ClientOptions() map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.clientOptions)
}

// CompileOptions returns the options of the last compilation.
func (f *Fake) CompileOptions() CompileOptions {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.compileOptions
}

// The objects behind handles.
type (
	client struct {
		devices []*device
		list    []uintptr // their handles
		store   *keyValue // of a client over several processes; nil: it is of one
	}
	device struct {
		handle      uintptr
		id, process int
		number      int // among those of its process
		local       bool
		memories    []uintptr
	}
	memory struct {
		id     int
		kind   string
		device *device
	}
	loaded struct {
		text    string
		program Program
		devices []*device
		list    []uintptr
		stats   pjrt.CompiledMemory
	}
	description struct {
		of    *loaded
		types []int32
		dims  []int64
		ranks []uintptr
		kinds []uintptr
		sizes []uintptr
	}
	serialized struct{ text []byte }
	buffer     struct {
		typ     int32
		dims    []int64
		data    []byte
		donated bool
		on      uintptr // a memory
		ready   *event
	}
	event struct {
		done chan struct{}
		err  *pjrt.Error
	}
	failure struct{ err *pjrt.Error }
)

// add gives an object a handle.
func (f *Fake) add(o any) uintptr {
	f.next += 64
	f.objects[f.next] = o
	if b, ok := o.(*buffer); ok {
		f.peaks[b.on] = max(f.peaks[b.on], f.inUse(b.on))
	}
	return f.next
}

// of returns the object of a handle.
func of[T any](f *Fake, handle uintptr) (T, *pjrt.Error) {
	o, ok := f.objects[handle].(T)
	if !ok {
		return o, bad("%#x is no %T", handle, o)
	}
	return o, nil
}

func bad(format string, args ...any) *pjrt.Error {
	return &pjrt.Error{Code: pjrt.InvalidArgument, Message: fmt.Sprintf(format, args...)}
}

// free removes the object of a handle, which must be of type T.
func free[T any](f *Fake, handle uintptr) *pjrt.Error {
	if _, err := of[T](f, handle); err != nil {
		return err
	}
	delete(f.objects, handle)
	return nil
}

// text returns a string that C may refer to as long as the fake lives.
func (f *Fake) text(s string) (unsafe.Pointer, uintptr) {
	b, ok := f.strings[s]
	if !ok {
		b = append([]byte(s), 0)
		f.strings[s] = b
	}
	return unsafe.Pointer(&b[0]), uintptr(len(s))
}

// happened ends an event.
func (e *event) happened(err *pjrt.Error) {
	e.err = err
	close(e.done)
}

func (e *event) isReady() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

func newEvent() *event { return &event{done: make(chan struct{})} }

// address makes a pointer of an address.
func address(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

func array[T any](p unsafe.Pointer, n uintptr) []T {
	if p == nil || n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), n)
}

// threads starts threads that Go did not make, as those of a real plugin.
var threads = sync.OnceValue(func() func(f func()) {
	create, err := purego.Dlsym(purego.RTLD_DEFAULT, "pthread_create")
	if err != nil {
		panic(err)
	}
	detach, err := purego.Dlsym(purego.RTLD_DEFAULT, "pthread_detach")
	if err != nil {
		panic(err)
	}
	var work sync.Map
	var last atomic.Uintptr
	start := purego.NewCallback(func(key uintptr) uintptr {
		f, _ := work.LoadAndDelete(key)
		f.(func())()
		return 0
	})
	return func(f func()) {
		key := last.Add(1)
		work.Store(key, f)
		id := new(uintptr)
		if failed, _, _ := purego.SyscallN(create, uintptr(unsafe.Pointer(id)), 0, start, key); failed != 0 {
			panic(fmt.Sprintf("pjrttest: pthread_create: error %d", failed))
		}
		purego.SyscallN(detach, *id)
	}
})
