// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import "github.com/easyparallel/epl/pjrt/find"

// LibraryPath is the environment variable that says where plugins are: folders or files, separated by colons.
const LibraryPath = find.LibraryPath

// NotFoundError says that there is no plugin, where [Find] looked for it, and what to do.
type NotFoundError = find.NotFoundError

// Find returns the path of a plugin, by its name: see [find.Plugin].
func Find(name string) (string, error) { return find.Plugin(name) }
