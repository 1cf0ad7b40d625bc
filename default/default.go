// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package _default lets GoMLX programs run on EPL without another change:
//
//	import _ "github.com/easyparallel/epl/default"
//
// What the program makes by compute.New or compute.MustNew is then EPL, on one device of this machine, unless GOMLX_BACKEND names another backend.
// GOMLX_BACKEND=epl:OPTIONS chooses devices and settings; epl.Of has the options, and finds the Env of the backend, for epl.Optimizer and
// Env.Dataset. The package links all that EPL runs programs on: its engine for CPUs, GoMLX's pure-Go backend, and GPUs (inner=xla:cuda), without cgo.
package _default

import (
	"github.com/gomlx/compute"

	_ "github.com/easyparallel/epl"     // registers "epl"
	_ "github.com/easyparallel/epl/xla" // what programs may run on
)

func init() { compute.DefaultConfig = "epl" }
