// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package words puts numbers into sentences.
package words

import (
	"fmt"
	"strings"
)

// Count is a number of things: "1 device", "2 devices", "3 batches".
func Count(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "ch"):
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
