// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import "github.com/easyparallel/epl/checkpoint"

// WaitForSave waits for what OnStep has begun to save.
func WaitForSave(c *Checkpoint) { c.wait() }

// BeforeCopy has a function called before each piece of a save is copied.
func BeforeCopy(f func()) { beforeCopy = f }

// OnFS has checkpoints on another file system.
func OnFS(b *CheckpointBuilder, fs checkpoint.FS) *CheckpointBuilder {
	b.fs = fs
	return b
}
