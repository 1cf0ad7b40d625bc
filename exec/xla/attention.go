// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"strconv"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
)

// hasCUDNN tells whether a GPU has fused attention: from NVIDIA's Ampere on.
func hasCUDNN(platform string, gpu *pjrt.Device) bool {
	text, _ := gpu.Attributes["compute_capability"].(string)
	capability, err := strconv.ParseFloat(text, 64)
	return platform == "cuda" && err == nil && capability >= 8
}

// Attention tells whether attention, and its gradient, run as one op: all that is recorded so, where there is cuDNN.
func (d *Device) Attention(*ir.Op) bool { return d.cudnn }
