// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

// RunTable runs the passes of another table.
var RunTable = run
