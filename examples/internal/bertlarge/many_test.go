// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package bertlarge

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/hlo"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

var dump = flag.String("dump", "", "`folder` for the modules of BERT-large on 64 GPUs, which bench/compile compiles")

// The step on many GPUs is one module, whatever ZeRO does.
func TestTheStepOnManyGPUsIsOneModule(t *testing.T) {
	devices := 64
	if *dump == "" { // each of them asks for the module
		devices = 8
		*batch, *length, *layers, *width, *heads, *hidden, *words = 4, 64, 2, 128, 2, 256, 512
	}
	*backend, *steps, *warmup = "xla:fake", 1, 0
	t.Setenv("EPL_DEVICES_PER_WORKER", strconv.Itoa(devices))
	for level, op := range map[string]string{"": "stablehlo.all_reduce", "v2": "stablehlo.reduce_scatter"} {
		t.Run("ZeRO "+level, func(t *testing.T) {
			t.Setenv("EPL_ZERO_LEVEL", level)
			f := pjrttest.New(t, pjrttest.Options{Platform: "cuda", Devices: devices})
			var step string
			see := func(s *ir.Segment, _ []bool, text string) {
				if s.Mesh == nil {
					f.Program(text, xlatest.Zeros(s))
					return
				}
				f.Fail("PJRT_Client_Compile", pjrt.Unimplemented, "the text is enough")
				if strings.Contains(step, hlo.KernelTarget) && !strings.Contains(text, hlo.KernelTarget) {
					return // it is tried without kernels
				}
				if step != "" && step != text || s.Mesh.Devices() != devices {
					t.Errorf("%q is another module, for %d devices", s.Name, s.Mesh.Devices())
				}
				step = text
			}
			exec.Register("xla", func(string) (exec.Kind, error) { return xlatest.Kind(t, f, xla.Options{Compiling: see}), nil })
			if err := measure("amp"); err == nil || !strings.Contains(err.Error(), "the text is enough") {
				t.Errorf("%q: %v", level, err)
			}
			for _, words := range []string{op, fmt.Sprintf("mhlo.num_replicas = %d", devices)} {
				if !strings.Contains(step, words) {
					t.Errorf("%q: the module has no %s", level, words)
				}
			}
			if *dump != "" {
				name := filepath.Join(*dump, fmt.Sprintf("bert-large-%d%s.mlir", devices, level))
				if err := os.WriteFile(name, []byte(step), 0o666); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
