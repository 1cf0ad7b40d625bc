// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package wire

import (
	"net"
	"time"
)

// setUserTimeout does nothing: here, unacknowledged data makes a connection fail when the system's own patience ends.
func setUserTimeout(net.Conn, time.Duration) {}
