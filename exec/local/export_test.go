// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

// ComingBytes is how much comes to common memory in a step.
var ComingBytes = &comingBytes
