// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
)

// module is a segment that XLA has compiled.
type module struct {
	*pjrt.Executable
	donates []bool              // inputs whose memory it may use
	memory  pjrt.CompiledMemory // zero: not known
	ops     []*ir.Op            // by their numbers in the text

	reading  sync.Mutex
	profiled *profiled // see client.profiled; nil: nobody asked
}

// patience is how long a module is compiled before that is said.
const patience = 2 * time.Second

// together is how many modules are compiled at the same time: XLA uses several threads for each.
const together = 8

// progress is how far a client is with modules that are asked for at the same time.
type progress struct {
	mu           sync.Mutex
	asked, ended int
	turns        chan struct{}          // who compiles
	same         map[string]*sync.Mutex // by key: several devices may need the same
}

func newProgress() *progress {
	return &progress{turns: make(chan struct{}, together), same: map[string]*sync.Mutex{}}
}

// begin asks for a module; number is which of those that are asked for it is.
func (p *progress) begin(key string) (number int, same *sync.Mutex) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.same[key] == nil {
		p.same[key] = &sync.Mutex{}
	}
	return p.asked, p.same[key]
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended++; p.ended == p.asked {
		p.asked, p.ended = 0, 0
		clear(p.same)
	}
}

// of is how many are asked for.
func (p *progress) of() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// compile compiles a module for GPUs that run it together, or finds it in the cache. What takes long is said.
func (c *client) compile(name, text string, gpus ...*pjrt.Device) (*module, error) {
	o := pjrt.CompileOptions{Replicas: len(gpus), Flags: c.flags}
	for _, gpu := range gpus {
		o.Devices = append(o.Devices, gpu.ID)
	}
	if len(gpus) > 1 { // processes compile by themselves: one may have the module in its cache, or have no part in it
		o.Flags = maps.Clone(c.flags)
		o.Flags["xla_gpu_shard_autotuning"] = false
	}
	key := c.key(text, o, gpus[0])
	number, same := c.progress.begin(key)
	defer c.progress.end()
	same.Lock()
	defer same.Unlock()
	c.progress.turns <- struct{}{}
	defer func() { <-c.progress.turns }()
	if e := c.opts.Cache.get(key); e != nil {
		if x, err := c.Deserialize(e.code); err == nil {
			return &module{Executable: x, memory: e.memory}, nil
		}
		c.opts.Cache.drop(key) // made by another version, or damaged
	}
	if peers := c.opts.Opening.Peers; peers != nil {
		defer peers.Busy("compiling")()
	}
	start := time.Now()
	slow := time.AfterFunc(c.patience, func() {
		c.log("epl: XLA compiles %s, %d of %d, for %s", name, number, c.progress.of(), gpus[0].Kind)
	})
	x, err := c.Compile([]byte(text), o)
	if !slow.Stop() {
		c.log("epl: XLA compiled %s in %.1f s", name, time.Since(start).Seconds())
	}
	if err != nil {
		return nil, errors.WithMessagef(err, "epl: XLA cannot compile %s", name)
	}
	m := &module{Executable: x}
	if m.memory, err = x.Memory(); err != nil {
		c.log("epl: XLA does not tell what %s needs of memory: %v", name, err)
	}
	if c.opts.Cache != nil {
		code, err := x.Serialize()
		if err == nil {
			err = c.opts.Cache.put(key, entry{m.memory, code})
		}
		if err != nil {
			c.log("epl: the compiled program %s cannot be kept: %v", name, err)
		}
	}
	return m, nil
}

func (c *client) log(format string, args ...any) {
	if c.opts.Log != nil {
		c.opts.Log(format, args...)
	}
}

// key names what a module is compiled to.
func (c *client) key(text string, o pjrt.CompileOptions, gpu *pjrt.Device) string {
	major, minor := c.Plugin().Version()
	var names []string
	for name := range o.Flags {
		names = append(names, fmt.Sprint(name, "=", o.Flags[name]))
	}
	slices.Sort(names)
	return hash(text, fmt.Sprint(major, ".", minor), c.Platform(), c.PlatformVersion(), gpu.Kind, fmt.Sprint(o.Devices, names), os.Getenv("XLA_FLAGS"))
}
