// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/pjrt/find"
	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// Client is a connection to the devices of a plugin: those of this process, and with [ClientOptions.Store] those of all
// processes of a job.
type Client struct {
	plugin  *Plugin
	ptr     uintptr
	store   uintptr // the key of the key-value store, or 0
	devices []*Device

	platform, platformVersion string
	processIndex              int

	mu      sync.Mutex
	open    handle // the head of the ring of open objects
	numOpen int
	calls   int // under way
	closed  bool
	late    error // of freeing objects after their Close had returned
}

// NewClient makes a client. It waits for the other processes, if there are any, until ctx is done.
func (p *Plugin) NewClient(ctx context.Context, options ClientOptions) (*Client, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	values, err := options.values()
	if err != nil {
		return nil, err
	}
	list, n, err := cValues(&pin, values)
	if err != nil {
		return nil, err
	}
	c := &Client{plugin: p}
	c.open.prev, c.open.next = &c.open, &c.open
	openClients.Lock()
	if p.closed {
		openClients.Unlock()
		return nil, errors.Wrapf(ErrClosed, "pjrt: the plugin %s cannot be used", p.path)
	}
	if openClients.set == nil {
		openClients.set = map[*Client]bool{}
	}
	openClients.set[c] = true
	openClients.Unlock()

	a := &capi.ClientCreateArgs{CreateOptions: list, NumOptions: n}
	if options.Store != nil {
		c.store = serveStore(options.Store)
		stop := context.AfterFunc(ctx, func() { cancelStore(c.store, context.Cause(ctx)) })
		defer stop()
		k := keyValueCallbacks()
		a.KvGetCallback, a.KvGetUserArg = k.get, c.store
		a.KvTryGetCallback, a.KvTryGetUserArg = k.tryGet, c.store
		a.KvPutCallback, a.KvPutUserArg = k.put, c.store
	}
	if err := call(p, capi.ClientCreate, a); err != nil {
		c.forget()
		if find.IsPlugin(p.path, "cuda") && find.NoGPU("/") {
			err = errors.WithMessage(err, "pjrt: this machine seems to have no NVIDIA GPU, as there is no /dev/nvidia*")
		}
		return nil, err
	}
	c.ptr = a.Client
	if err := c.describe(); err != nil {
		return nil, errors.WithMessage(errors.WithStack(joined(err, c.Close())), "pjrt: the new client cannot be described")
	}
	return c, nil
}

// describe asks for what does not change while the client lives.
func (c *Client) describe() error {
	name, version := &capi.ClientPlatformNameArgs{Client: c.ptr}, &capi.ClientPlatformVersionArgs{Client: c.ptr}
	index, devices := &capi.ClientProcessIndexArgs{Client: c.ptr}, &capi.ClientDevicesArgs{Client: c.ptr}
	if err := joined(call(c.plugin, capi.ClientPlatformName, name), call(c.plugin, capi.ClientPlatformVersion, version),
		call(c.plugin, capi.ClientProcessIndex, index), call(c.plugin, capi.ClientDevices, devices)); err != nil {
		return err
	}
	c.platform, c.platformVersion = cString(name.PlatformName, name.PlatformNameSize), cString(version.PlatformVersion, version.PlatformVersionSize)
	c.processIndex = int(index.ProcessIndex)
	for _, ptr := range cSlice[uintptr](devices.Devices, devices.NumDevices) {
		d, err := newDevice(c, ptr)
		if err != nil {
			return err
		}
		c.devices = append(c.devices, d)
	}
	return nil
}

// Plugin returns the plugin of the client.
func (c *Client) Plugin() *Plugin { return c.plugin }

// Platform returns the plugin's name of the platform, such as "cuda".
func (c *Client) Platform() string { return c.platform }

// PlatformVersion returns the versions of what the platform consists of, for people and for the keys of caches.
func (c *Client) PlatformVersion() string { return c.platformVersion }

// ProcessIndex returns the position of this process among those of the client.
func (c *Client) ProcessIndex() int { return c.processIndex }

// Devices returns the devices of all processes.
func (c *Client) Devices() []*Device { return slices.Clone(c.devices) }

// AddressableDevices returns the devices of this process.
func (c *Client) AddressableDevices() []*Device {
	return slices.DeleteFunc(c.Devices(), func(d *Device) bool { return !d.Addressable })
}

// NumOpen returns how many executables, buffers, events and host mappings of the client are open.
func (c *Client) NumOpen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.numOpen
}

// Close frees the client. It fails with [ErrStillOpen] while objects of the client are open or calls are under way, names
// them, and leaves the client as it was.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	if c.numOpen > 0 || c.calls > 0 {
		const shown = 8
		counts, some := map[string]int{}, []*handle{}
		for h := c.open.next; h != &c.open; h = h.next {
			counts[h.self.kind()]++
			if len(some) < shown {
				some = append(some, h)
			}
		}
		if c.calls > 0 {
			counts["call"] = c.calls
		}
		c.mu.Unlock() // describing an object calls C
		return errors.Wrapf(ErrStillOpen, "pjrt: the client cannot be closed: %s", describeOpen(counts, some))
	}
	c.closed = true
	c.mu.Unlock()
	err := joined(c.late, call(c.plugin, capi.ClientDestroy, &capi.ClientDestroyArgs{Client: c.ptr}))
	c.forget()
	return err
}

// CloseAll closes all objects of the client, and then the client. It is for an owner of the client that lends its objects out: who holds one
// finds it closed.
func (c *Client) CloseAll() error {
	c.mu.Lock()
	var all []*handle
	for h := c.open.next; h != &c.open; h = h.next {
		all = append(all, h)
	}
	c.mu.Unlock()
	var errs []error
	for _, h := range all {
		errs = append(errs, h.self.(interface{ Close() error }).Close())
	}
	return joined(append(errs, c.Close())...)
}

func describeOpen(counts map[string]int, some []*handle) string {
	var list []string
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, words.Count(counts[kind], kind))
		if kind != "call" {
			total += counts[kind]
		}
	}
	text := strings.Join(list, ", ")
	if len(some) == 0 {
		return text
	}
	list = nil
	for _, h := range some {
		list = append(list, h.self.describe())
	}
	if total > len(some) {
		list = append(list, "…")
	}
	return text + " (" + strings.Join(list, ", ") + ")"
}

// forget removes what the package keeps of a client that C has freed or never made.
func (c *Client) forget() {
	if c.store != 0 {
		dropStore(c.store)
	}
	openClients.Lock()
	delete(openClients.set, c)
	openClients.Unlock()
}

// enter begins a call on the client itself, which cannot be closed until leave.
func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.Wrap(ErrClosed, "pjrt: this client cannot be used")
	}
	c.calls++
	return nil
}

func (c *Client) leave() {
	c.mu.Lock()
	c.calls--
	c.mu.Unlock()
}

// freed takes an object that was freed off the list of open ones.
func (c *Client) freed(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.prev.next, h.next.prev = h.next, h.prev
	h.prev, h.next = nil, nil
	c.numOpen--
}
