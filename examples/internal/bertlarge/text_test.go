// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package bertlarge

import (
	"strings"
	"testing"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// The passes for XLA know all of the model's GELUs, norms, sums of queries, keys and values, and the vocabulary: what XLA gets has none as GoMLX
// wrote them.
func TestPassesForXLAFindAllOfTheModel(t *testing.T) {
	var step string
	f := pjrttest.New(t, pjrttest.Options{Platform: "cuda"})
	see := func(s *ir.Segment, _ []bool, text string) {
		if strings.Contains(text, "dot_general") {
			step = text
		}
		f.Program(text, xlatest.Zeros(s))
	}
	exec.Register("xla", func(string) (exec.Kind, error) { return xlatest.Kind(t, f, xla.Options{Compiling: see}), nil })
	*batch, *length, *layers, *width, *heads, *hidden, *words = 4, 64, 2, 128, 2, 512, 5000
	*backend = "xla:fake"
	*steps, *warmup = 1, 0
	if err := measure("amp"); err != nil {
		t.Fatal(err)
	}
	for part, want := range map[string]int{
		"stablehlo.logistic":       3 + 1, // in each layer, and in the head, forward; in the head backward
		"@gelu_gradient":           2,
		"@norm_gradient":           2 * 2, // but the first and the last
		"stablehlo.concatenate":    2 + 1, // and indices of labels
		"-> tensor<256x5000xbf16>": 0,     // it has 5120 columns
		"-> tensor<256x5000xf32>":  0,
		"tensor<4x2x64xbf16>":      0, // the state of attention is float32
	} {
		if got := strings.Count(step, part); got != want {
			t.Errorf("%q is there %d times, not %d", part, got, want)
		}
	}
}
