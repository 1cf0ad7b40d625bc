// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"os"
	"strings"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"
)

// allowTF32 tells devices that have TF32 whether they may use it.
func allowTF32(devices []compute.Backend, yes bool) {
	for _, d := range devices {
		if x, ok := d.(interface{ AllowTF32(bool) }); ok {
			x.AllowTF32(yes)
		}
	}
}

// commandBuffers is the option of XLA that makes CUDA graphs of the pieces of a program.
const commandBuffers = "xla_gpu_enable_command_buffer"

// tuneXLA switches CUDA graphs off, unless XLA_FLAGS says something about them. They hold addresses, and GoMLX's XLA backend
// gives variables new ones in every step, so that the graphs are made anew each time: a step of BERT-large takes 108 ms with
// them and 93 without. A backend "xla" without a plugin takes CUDA where there is one.
func tuneXLA(backend string) error {
	kind, plugin, _ := strings.Cut(backend, ":")
	flags := os.Getenv("XLA_FLAGS")
	if kind != "xla" || plugin != "" && !strings.Contains(plugin, "cuda") || strings.Contains(flags, commandBuffers) {
		return nil
	}
	err := os.Setenv("XLA_FLAGS", strings.TrimSpace(flags+" --"+commandBuffers+"="))
	return errors.Wrap(err, "epl: XLA_FLAGS cannot be set")
}
