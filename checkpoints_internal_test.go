package epl

import "github.com/easyparallel/epl/checkpoint"

// WaitForSave waits for what OnStep has begun to save.
func WaitForSave(c *Checkpoint) { c.wait() }

// OnFS has checkpoints on another file system.
func OnFS(b *CheckpointBuilder, fs checkpoint.FS) *CheckpointBuilder {
	b.fs = fs
	return b
}
