// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package launch

import "syscall"

// canSweep says that processes can be found by their mark. Here they cannot: those that leave their worker's process group
// stay, and a launcher that is killed leaves its workers.
const canSweep = false

func withParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }

func marked(string) (pids, unclear []int) { return nil, nil }

func ownThread(_ <-chan struct{}, f func()) { f() }
