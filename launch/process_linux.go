// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// canSweep says that processes can be found by their mark.
const canSweep = true

// withParent makes the process end with the thread that starts it.
func withParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Pdeathsig = syscall.SIGKILL
	return attr
}

// marked returns the processes whose environment has the mark, and those that have a program and no environment: in
// the middle of an exec a process shows none.
func marked(mark string) (pids, unclear []int) {
	want := []byte(envMark + "=" + mark + "\x00")
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		switch {
		case err != nil || pid == os.Getpid():
		case bytes.HasPrefix(environ, want) || bytes.Contains(environ, append([]byte{0}, want...)):
			pids = append(pids, pid)
		case len(environ) == 0:
			if _, err := os.Readlink(filepath.Join(filepath.Dir(file), "exe")); err == nil { // not the kernel's own, not a zombie
				unclear = append(unclear, pid)
			}
		}
	}
	return pids, unclear
}

// ownThread runs the function on a thread that lives until the channel is closed: a process that is to end with its
// parent ends, in truth, with the thread that started it.
func ownThread(until <-chan struct{}, f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f()
		close(done)
		<-until
	}()
	<-done
}
