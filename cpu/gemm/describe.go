// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package gemm

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
)

// Kernel names the microkernel that multiplies elements of a type on this CPU, by the rows and columns of its tiles.
func Kernel(d dtypes.DType) string {
	switch {
	case d == dtypes.Float64:
		return fmt.Sprintf("%dx%d", micro64.rows, micro64.cols)
	case SupportsIntegers(d):
		return fmt.Sprintf("portable %dx%d", portableRows, portableCols)
	}
	return fmt.Sprintf("%dx%d", micro32.rows, micro32.cols)
}
