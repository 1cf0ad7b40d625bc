// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package xla lets programs run on GPUs: import it for its side effect, and choose the backend "xla:cuda" by epl.WithInner or GOMLX_BACKEND.
//
//	import _ "github.com/easyparallel/epl/xla"
//
//	env, err := epl.Init(nil, epl.WithInner("xla:cuda"))
//
// It needs no cgo, but a PJRT plugin of XLA on the machine: see docs/gpu.md. A program that imports it is linked with the C library, to load the
// plugin; one that does not stays static. Package exec/xla does the work.
package xla

import (
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/pjrt"
)

func init() { exec.Register("xla", find) }

// EnvCache is a folder for programs that XLA has compiled, so that they start at once the next time; "off": they are not kept. The
// default is epl/xla in the user's cache folder.
const EnvCache = "EPL_XLA_CACHE"

// EnvSend says "nccl" to let GPUs of different workers send values of stages to each other by NCCL; otherwise these go through the host. All workers have to
// say the same.
const EnvSend = "EPL_XLA_SEND"

// EnvCUDNN says "off" to write attention out, which otherwise cuDNN computes in half precision.
const EnvCUDNN = "EPL_XLA_CUDNN"

// cacheBytes is how large it becomes.
const cacheBytes = 8 << 30

// find reads the options of the backend's name, and loads the plugin.
func find(options string) (exec.Kind, error) {
	name, o, err := xla.Parse(options)
	if err != nil {
		return nil, err
	}
	path, err := pjrt.Find(name)
	if err != nil {
		return nil, err
	}
	g := &gpus{name: name, options: o}
	if g.plugin, err = pjrt.Load(path); err != nil {
		return nil, err
	}
	g.options.Log, g.options.NoCUDNN, g.options.Send = log.Printf, os.Getenv(EnvCUDNN) == "off", os.Getenv(EnvSend) == "nccl"
	if folder := os.Getenv(EnvCache); folder != "off" {
		if folder == "" {
			cache, err := os.UserCacheDir()
			if err != nil {
				return nil, errors.Errorf("no folder for compiled programs: %v; set %s to one, or to \"off\"", err, EnvCache)
			}
			folder = filepath.Join(cache, "epl", "xla")
		}
		if g.options.Cache, err = xla.NewCache(folder, cacheBytes); err != nil {
			return nil, errors.WithMessagef(err, "%s", EnvCache)
		}
	}
	return g, nil
}

// gpus are those of a plugin. It implements exec.Kind.
type gpus struct {
	name    string // of the plugin: the same on all workers, as its path need not be
	plugin  *pjrt.Plugin
	options xla.Options
}

// Joint implements exec.Kind.
func (g *gpus) Joint() error {
	if g.options.Share > 1 {
		return errors.Errorf("share=%d makes several devices of a GPU, and NCCL takes one only once", g.options.Share)
	}
	if !strings.Contains(filepath.Base(g.name), "cuda") {
		return errors.Errorf("the plugin %q is not for CUDA", g.name)
	}
	return nil
}

// Open implements exec.Kind.
func (g *gpus) Open(opening exec.Opening) (devices []compute.Backend, err error) {
	o := g.options
	o.Opening = opening
	all, err := xla.Devices(g.plugin, o)
	for _, d := range all {
		devices = append(devices, d)
	}
	return devices, err
}
