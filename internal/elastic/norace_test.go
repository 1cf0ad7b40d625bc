// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !race

package elastic

// slowly is how many times as long workers may take to end and to start under the race detector: whoever is out must still be so when the others start.
const slowly = 1
