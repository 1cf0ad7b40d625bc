// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package bertlarge

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// What a step takes on an H200 was measured: docs/benchmarks.md.
func TestAStepOnAnH200IsPredicted(t *testing.T) {
	h200, err := cost.Find("H200")
	if err != nil {
		t.Fatal(err)
	}
	*backend, *steps, *warmup = "xla:fake", 1, 0
	for _, c := range []struct {
		name                                 string
		batch, length, layers, width, hidden int
		measured                             time.Duration
	}{
		{"BERT-large", 32, 512, 24, 1024, 4096, 80700 * time.Microsecond},
		{"small", 8, 128, 4, 512, 2048, 1380 * time.Microsecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			*batch, *length, *layers, *width, *heads, *hidden, *words = c.batch, c.length, c.layers, c.width, c.width/64, c.hidden, 30522
			f := pjrttest.New(t, pjrttest.Options{Platform: "cuda", Devices: 1})
			var predicted time.Duration
			see := func(s *ir.Segment, _ []bool, text string) {
				if len(s.Ops) < 500 {
					f.Program(text, xlatest.Zeros(s)) // initial values
					return
				}
				predicted = h200.Ops(s)
				f.Fail("PJRT_Client_Compile", pjrt.Unimplemented, "the text is enough")
			}
			exec.Register("xla", func(string) (exec.Kind, error) { return xlatest.Kind(t, f, xla.Options{Compiling: see}), nil })
			if err := measure("amp"); err == nil || !strings.Contains(err.Error(), "the text is enough") {
				t.Fatal(err)
			}
			off := float64(predicted)/float64(c.measured) - 1
			t.Logf("predicted %v, measured %v: %+.1f %%", predicted, c.measured, 100*off)
			if math.Abs(off) > 0.15 {
				t.Errorf("predicted %v, measured %v", predicted, c.measured)
			}
		})
	}
}
