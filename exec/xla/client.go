// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package xla makes the GPUs of this machine devices that programs run on: through PJRT, without cgo.
//
// What goes in is a plugin ([Devices]), then segments of the IR. What comes out are devices, a compute.Backend each, that compile a
// segment as one StableHLO module (package hlo) and run it asynchronously: results can be used at once, and an error of the device comes
// when something is read. Compiled modules are kept on disk ([Cache]).
//
// It may assume that segments are lowered to local shapes. Ops are recorded against GoMLX's pure-Go backend, so that a program recorded on
// a laptop is the one that is recorded beside a GPU; but attention in half precision is one op where cuDNN has it.
package xla

import (
	"cmp"
	"context"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
)

// Options of [Devices].
type Options struct {
	pjrt.ClientOptions
	// Opening says how many of the GPUs are used, and whether those of other workers are in the same client.
	Opening exec.Opening
	// Share is how many devices each GPU is; 0: one. Those of a GPU take turns: it is for tests.
	Share int
	// Cache keeps compiled modules; nil: none are kept.
	Cache *Cache
	// Send lets GPUs of different workers send values of stages to each other, by NCCL.
	Send bool
	// NoCUDNN writes attention out instead of calling cuDNN.
	NoCUDNN bool
	// Flags are XLA's, without dashes, for all modules. They add to XLA_FLAGS.
	Flags map[string]any
	// Compiling sees every module that is compiled; nil: nobody does. It is for tests.
	Compiling func(s *ir.Segment, donate []bool, text string)
	// Log is told what takes long; nil: nobody is.
	Log func(format string, args ...any)
}

// Parse reads the options of a backend's name: "cuda", "cuda,share=4", or a path of a plugin.
func Parse(text string) (plugin string, o Options, err error) {
	parts := strings.Split(text, ",")
	if plugin = parts[0]; plugin == "" {
		plugin = "cuda"
	}
	if o.ClientOptions, err = pjrt.OptionsFromEnv(); err != nil {
		return "", o, err
	}
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		if name != "share" || err != nil || n < 1 {
			return "", o, errors.Errorf("epl: the backend \"xla\" has no option %q; it has share=N: every GPU is N devices, for tests", part)
		}
		o.Share = n
	}
	return plugin, o, nil
}

// Devices makes devices of the GPUs that a plugin finds. Finalizing all of them ends it.
func Devices(p *pjrt.Plugin, o Options) ([]*Device, error) {
	if o.Opening.Peers != nil {
		o.NumProcesses, o.ProcessIndex, o.Store = len(o.Opening.Workers), o.Opening.Worker, store{o.Opening.Peers}
	}
	c, err := p.NewClient(context.Background(), o.ClientOptions)
	if err != nil {
		return nil, err
	}
	x := &client{Client: c, opts: o, flags: flags(o, os.Getenv("XLA_FLAGS")), progress: newProgress(), patience: patience}
	all, err := x.devices()
	if err != nil {
		_ = c.CloseAll()
		return nil, err
	}
	return all, nil
}

// devices makes those that this worker uses.
func (c *client) devices() (all []*Device, err error) {
	share, o := max(c.opts.Share, 1), c.opts.Opening
	gpus := c.gpus(c.ProcessIndex())
	if len(gpus) == 0 {
		return nil, errors.Errorf("epl: the plugin %s finds no device (see nvidia-smi, and CUDA_VISIBLE_DEVICES)", c.Plugin().Path())
	}
	if n := share * len(gpus); o.Peers == nil && o.Needed() > n {
		return nil, errors.Errorf("this worker is to have %s, and there are %d GPUs: start fewer, or another worker on another machine", words.Count(o.Needed(), "device"), n)
	}
	if c.ranks, err = c.allRanks(); err != nil {
		return nil, err
	}
	for i := range cmp.Or(o.Needed(), share*len(gpus)) {
		shadow, err := gobackend.New("ops_sequential")
		if err != nil {
			return nil, err
		}
		gpu := gpus[i%len(gpus)]
		d := &Device{Backend: shadow, client: c, gpu: gpu, cudnn: !c.opts.NoCUDNN && hasCUDNN(c.Platform(), gpu)}
		d.pinned, _ = gpu.Memory("pinned_host") // some plugins have none
		all = append(all, d)
	}
	c.users = len(all)
	return all, nil
}

// defaults are flags of XLA that measured better, on an H200: products by cuBLAS.
var defaults = map[string]any{"xla_gpu_enable_triton_gemm": false}

// forKernels are flags of XLA without which the profiler does not know what kernels are for: those of CUDA graphs have no names.
var forKernels = map[string]any{"xla_gpu_enable_command_buffer": ""}

// flags adds to those given the defaults that neither they nor the environment mention.
func flags(o Options, environment string) map[string]any {
	all, own := map[string]any{}, maps.Clone(defaults)
	if o.Opening.Kernels {
		maps.Copy(own, forKernels)
	}
	for name, value := range own {
		if !strings.Contains(environment, name) {
			all[name] = value
		}
	}
	for name, value := range o.Flags {
		all[name] = value
	}
	return all
}

// client is what the devices share.
type client struct {
	*pjrt.Client
	opts     Options
	flags    map[string]any
	progress *progress
	patience time.Duration  // before it says that it compiles
	ranks    []*pjrt.Device // see Device.Ranks

	mu      sync.Mutex
	users   int // devices that are not finalized
	groups  map[*ir.Segment]*code
	modules map[string]*module // that are loaded, by name
	sent    map[[2]int]int64   // copies between two ranks, by sender and receiver
	err     error
}

// release ends the client with its last device.
func (c *client) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users == 0 && !c.stuck() {
		c.err = c.CloseAll() // GoMLX's tensors and programs may outlive the devices
	}
	return c.err
}

var _ compute.Backend = (*Device)(nil)
