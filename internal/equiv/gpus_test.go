// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"flag"
	"log"
	"os"
	"testing"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// -equiv.gpus runs the tests of this package on GPUs, up to XLA itself: modules compute what GoMLX's pure-Go backend computes.
var onGPUs = flag.Bool("equiv.gpus", false, "train on fake GPUs, which run segments together")

// forever is a test that does not end before the process.
type forever struct{ testing.TB }

func (forever) Helper()                           {}
func (forever) Cleanup(func())                    {}
func (forever) Fatal(args ...any)                 { log.Fatal(args...) }
func (forever) Errorf(format string, args ...any) { log.Fatalf(format, args...) }

const fake = "xla:fake"

// gpusForAll makes fake GPUs the default backend.
func gpusForAll() {
	const most = 32
	f := pjrttest.New(forever{}, pjrttest.Options{Devices: most})
	exec.Register("xla", func(string) (exec.Kind, error) { return xlatest.Kind(forever{}, f, xla.Options{}), nil })
	os.Setenv("GOMLX_BACKEND", fake) // also for workers that tests start
}
