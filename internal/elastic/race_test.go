// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build race

package elastic

// slowly is how many times as long workers may take to end and to start.
const slowly = 5
