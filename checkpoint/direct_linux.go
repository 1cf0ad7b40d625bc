// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// setDirect lets writes to a file go past the page cache, or through it.
func setDirect(f *os.File, on bool) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	set := func(fd uintptr) error {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		if err != nil {
			return err
		}
		flags &^= unix.O_DIRECT
		if on {
			flags |= unix.O_DIRECT
		}
		_, err = unix.FcntlInt(fd, unix.F_SETFL, flags)
		return err
	}
	if e := c.Control(func(fd uintptr) { err = set(fd) }); e != nil {
		return e
	}
	return err
}

// refused tells whether an error means that a file system does not write past the cache.
func refused(err error) bool { return errors.Is(err, unix.EINVAL) }
