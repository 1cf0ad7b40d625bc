// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package version holds the version of EPL, for commands to print and for files to name what wrote them.
package version

// Version is the version of this source tree.
const Version = "0.1.0-dev"
