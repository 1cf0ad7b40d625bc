// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package faults

import "syscall"

// Save tells that this worker begins to write a checkpoint.
func (i *Injector) Save() {
	if i != nil {
		i.saves.Add(1)
	}
}

// Write tells that this worker writes into a file of a checkpoint. An error is to be that of the write; part of the bytes are written before.
func (i *Injector) Write(part func()) error {
	if i == nil {
		return nil
	}
	for _, p := range i.mine {
		if !p.disk() || int64(p.Save) != i.saves.Load() {
			continue
		}
		part()
		switch p.Kind {
		case Kill:
			i.fire(p, "the worker is killed while it saves")
			i.die(syscall.SIGKILL)
		case DiskFull:
			i.fire(p, "the disk is full")
			return syscall.ENOSPC
		case DiskError:
			i.fire(p, "the disk has an error")
			return syscall.EIO
		}
	}
	return nil
}

// Saves tells whether anything is to happen while this worker saves.
func (i *Injector) Saves() bool {
	if i != nil {
		for _, p := range i.mine {
			if p.disk() {
				return true
			}
		}
	}
	return false
}
