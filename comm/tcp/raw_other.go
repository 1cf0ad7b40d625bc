// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package tcp

import "net"

// rawLinks returns nothing: bare file descriptors are used on Linux.
func rawLinks([]net.Conn) ([]link, linkPoll, error) { return nil, nil, nil }
