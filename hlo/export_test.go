// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

// Refused are the operations without a text, with the reason.
var Refused = refused
