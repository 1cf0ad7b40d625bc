// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package checkpoint

import (
	"errors"
	"os"
)

// setDirect is for systems that can write past the page cache.
func setDirect(*os.File, bool) error { return errors.ErrUnsupported }

// refused tells whether an error means that the system does not write past the cache.
func refused(err error) bool { return errors.Is(err, errors.ErrUnsupported) }
